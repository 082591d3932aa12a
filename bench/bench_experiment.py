"""What the experiments share: their options, where results go, and in which form. An experiment
called `name` leaves in bench/results/name/: name.md (a table), name.csv (what the table and
RESULTS.md say), further CSVs over time, name.svg and, where rsvg-convert is installed, name.png."""

import argparse
import csv
import os
import pathlib
import shutil
import signal
import sys
import tempfile

from bench_plot import write_svg
from bench_tools import ROOT, commit, machine

RESULTS = ROOT / "bench" / "results"


class Experiment:
    """One run of an experiment: `options`, a folder for logs, and a place for results. With --smoke
    nothing that is committed is touched."""

    def __init__(self, name, doc, programs, add_options=None):
        parser = argparse.ArgumentParser(description=doc,
                                         formatter_class=argparse.RawDescriptionHelpFormatter)
        size = parser.add_mutually_exclusive_group()
        size.add_argument("--smoke", action="store_true", help="a few seconds: does it run at all")
        size.add_argument("--full", action="store_true", help="long")
        parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
        parser.add_argument("--out", type=pathlib.Path, help=f"instead of bench/results/{name}")
        if add_options:
            add_options(parser)
        self.name, self.options = name, parser.parse_args()
        self.build = self.options.build.resolve()
        for program in programs:
            if not (self.build / program).exists():
                raise SystemExit(f"{name}: {self.build / program} is missing: build it, or name a "
                                 "folder with --build")
        self.about = machine()  # before our own load counts
        self.commit = commit()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"spillway-{name}-"))
        self.out = self.options.out or (self.folder / "out" if self.options.smoke
                                        else RESULTS / name)
        self.out.mkdir(parents=True, exist_ok=True)
        self.complaints = []
        # The same way out as Ctrl-C.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def size(self, smoke, usual, full):
        """Of three, the one for this run."""
        return smoke if self.options.smoke else full if self.options.full else usual

    def say(self, text):
        print(f"{self.name}: {text}", file=sys.stderr, flush=True)

    def complain(self, text):
        """The run fails, and goes on."""
        self.complaints.append(text)
        self.say(f"FAILED {text}")

    def caption(self, heap):
        return f"Machine: {self.about}. Heap: {heap}. Commit {self.commit}."

    def write_csv(self, rows, name=None):
        """`rows`: dictionaries with the same keys."""
        path = self.out / f"{name or self.name}.csv"
        with open(path, "w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def write_table(self, title, head, rows, heap, notes=()):
        """`head`: names; those of numbers begin with `#`. Prints it, too."""
        lines = [f"# {title}", "", "| " + " | ".join(h.lstrip("#") for h in head) + " |",
                 "|" + "|".join("--:" if h.startswith("#") else "---" for h in head) + "|"]
        lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
        lines += ["", *[f"- {note}" for note in notes], *([""] if notes else []),
                  self.caption(heap), f"Repeat: `bench/{self.name}`."]
        text = "\n".join(lines) + "\n"
        (self.out / f"{self.name}.md").write_text(text, encoding="utf-8")
        print(text, flush=True)

    def plot(self, panels, x_title, y_title, heap, what):
        write_svg(self.out / f"{self.name}.svg", panels, x_title, y_title,
                  f"{what} {self.caption(heap)}")

    def result(self):
        """The exit code."""
        if os.environ.get("SPILLWAY_BENCH_KEEP"):
            self.say(f"logs in {self.folder}")
        return 1 if self.complaints else 0
