"""pytest plugin: FerretDB's getParameter lacks enableTestCommands, which the suite's set-up reads."""
from pymongo.synchronous.database import Database

ask = Database.command
Database.command = lambda self, command, *a, **k: (
    {"enableTestCommands": False, **ask(self, command, *a, **k)}
    if command == "getParameter" else ask(self, command, *a, **k))
