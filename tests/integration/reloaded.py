"""A proxy whose configuration is changed while it runs."""

import json
import signal

from proxy import Proxy
from waiting import wait_for


class Reloaded(Proxy):
    """A proxy whose file can be changed; the log is its own file."""

    def __init__(self, binary, config):
        super().__init__(binary, config)
        self.config = json.loads(self.config_path.read_text())

    def reload(self, text=None):
        """Writes the configuration (or this text) and waits for the outcome's log line."""
        before = len(self.outcomes())
        self.config_path.write_text(json.dumps(self.config) if text is None else text)
        self.process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(self.outcomes()) > before, "the outcome")
        return self.outcomes()[-1]

    def outcomes(self):
        return [line for line in self.log().splitlines()
                if " reloaded: " in line or " reload refused, " in line]

    def log(self):
        return self.log_path.read_text(errors="replace")
