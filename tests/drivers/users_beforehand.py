"""pytest plugin: the users that the suite creates are in the proxy's configuration already."""
from pymongo.synchronous.database import Database

CHANGES = {"createUser", "dropUser", "dropAllUsersFromDatabase"}
ask = Database.command


def command(self, command, *arguments, **named):
    name = command if isinstance(command, str) else next(iter(command))
    return {"ok": 1} if name in CHANGES else ask(self, command, *arguments, **named)


Database.command = command
