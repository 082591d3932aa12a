#!/usr/bin/env python3
"""Checks what a compiler does not: layers, headers, banned words, dead files, names in READMEs.

Usage: tidy.py [ROOT]. Prints one line per finding, "file:line: what"; exit code 1 if there are
any. Knows nothing of C++ beyond lines that begin with #include.
"""

import os
import re
import sys

# A layer may include itself and the layers named here (proxy/README.md, "The layers"). Siblings never
# include each other.
_BELOW_WIRE = ("allocator", "cursor", "proxy/base")
LAYERS = {
    "allocator": (),
    "cursor": ("allocator",),
    "proxy/base": ("allocator", "cursor"),
    "proxy/wire": _BELOW_WIRE,
    "proxy/auth": _BELOW_WIRE + ("proxy/wire",),
    "proxy/catalog": _BELOW_WIRE + ("proxy/wire", "proxy/auth"),
    "proxy/shard": _BELOW_WIRE + ("proxy/wire", "proxy/auth"),
    "proxy/config": _BELOW_WIRE + ("proxy/wire", "proxy/auth", "proxy/catalog", "proxy/shard"),
    "proxy/pipeline": _BELOW_WIRE,
    "proxy/cluster": _BELOW_WIRE + ("proxy/wire", "proxy/auth", "proxy/catalog", "proxy/shard"),
    "proxy/exec": _BELOW_WIRE + (
        "proxy/wire", "proxy/auth", "proxy/catalog", "proxy/shard", "proxy/config", "proxy/pipeline", "proxy/cluster"),
    "proxy/server": _BELOW_WIRE + (
        "proxy/wire", "proxy/auth", "proxy/catalog", "proxy/shard", "proxy/exec", "proxy/config",
        "proxy/cluster"),
    "proxy/canned": _BELOW_WIRE + ("proxy/wire",),
}

# The rooms of a layer, bottom up: a room includes only itself and those before it.
ROOMS = {
    "proxy/exec": ("counters", "tables", "core", "cluster", "sharding", "cursors", "streams", "access", "read", "write", "schema", "admin", "commands"),
    "proxy/pipeline": ("values", "expressions", "stages", "split"),
    "proxy/server": ("system", "traces", "connections", "admin", "reload", "life", "tools"),
}

# The services that workers share, each beside the header that its users include; and the files that own them all.
SERVICES = "proxy/exec/core/services.h"
SERVICES_OWNED = "proxy/exec/core/shared.h"
SERVICES_OWNERS = ("proxy/exec/commands/shared.cpp", "proxy/server/life/server.cpp")

# The one file that knows everything; it takes the canned shards of --canned.
MAIN = "proxy/server/main.cpp"

# Third-party headers have doors: inside the layers, only files whose path begins so include them.
DOORS = {
    "spdlog/": ("proxy/base/log",),
    "CLI/": ("proxy/server/tools/command_line",),
    "yaml-cpp/": ("proxy/catalog/", "proxy/config/yaml"),
    "bson/": ("cursor/",),
    "openssl/": ("proxy/auth/crypto", "proxy/base/tls_", "cursor/"),
    "stringprep": ("proxy/auth/saslprep",),
    "boost/beast": ("proxy/server/admin/admin_http", "proxy/server/traces/http_client"),
    "boost/asio": ("proxy/base/", "proxy/server/"),
}

# (pattern, why, path beginnings where it is allowed, file endings looked at)
_CODE = (".h", ".cpp")
_ANY = (".h", ".cpp", ".py", ".sh", ".js", ".go", ".java", "CMakeLists.txt")
BANNED = (
    (r"system_clock\s*::\s*now", "time comes in as a parameter; wall time is for logs",
     ("proxy/base/clock", "proxy/base/log", "proxy/canned/", "bench/", "tests/"), _CODE),
    (r"std\s*::\s*cout", "output is for main and the command line",
     ("proxy/server/main", "proxy/server/tools/command_line", "bench/", "tests/"), _CODE),
    (r"catch\s*\(\s*\.\.\.\s*\)\s*\{\s*\}", "an exception is swallowed", (), _CODE),
    (r"\bgateway(\.|->)call\s*\(", "commands to shards go through exec::call_shard",
     ("proxy/exec/core/shard_call.cpp", "proxy/shard/", "tests/", "bench/"), _CODE),
    (r"\b(TODO|FIXME)\b", "finish it, or leave it out", (), _ANY),
)

SKIPPED_FOLDERS = {".git", ".cache", "build", "node_modules", "__pycache__"}
# In angle brackets or in quotes, these are not ours.
THIRD_PARTY = ("absl/", "boost/")
COLUMNS_MAX = 120
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
README_PATH = re.compile(r"^(\./)?[\w.-]+(/[\w.-]+)*$")
README_ENDINGS = (".h", ".cpp", ".py", ".md", ".yaml", ".service", ".txt", ".cfg", ".json", ".sh")


class Tree:
    """The files of a source tree, as paths relative to its root with forward slashes."""

    def __init__(self, root):
        self.root = root
        self.files = []
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = sorted(
                s for s in subfolders if s not in SKIPPED_FOLDERS and not s.startswith("build-"))
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                self.files.append(path.replace(os.sep, "/"))
        self._texts = {}

    def text(self, path):
        if path not in self._texts:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                self._texts[path] = file.read()
        return self._texts[path]

    def lines(self, path):
        return self.text(path).split("\n")

    def ending(self, *endings):
        return [f for f in self.files if f.endswith(endings)]

    def exists(self, path):
        return os.path.exists(os.path.join(self.root, path))


class Findings:
    def __init__(self):
        self.errors = []

    def error(self, path, line, text):
        self.errors.append(f"{path}:{line}: {text}")


def layer_of(path):
    for layer in LAYERS:
        if path.startswith(layer + "/"):
            return layer
    return None


def includes_of(tree, path):
    """(line, whether it is ours, target). Outside the layers a target may be a neighbour's name."""
    for number, line in enumerate(tree.lines(path), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(2)
        ours = match.group(1) == '"' and not target.startswith(THIRD_PARTY)
        if ours and layer_of(path) is None and not tree.exists(target):
            beside = os.path.normpath(os.path.join(os.path.dirname(path), target))
            target = beside.replace(os.sep, "/") if tree.exists(beside) else target
        yield number, ours, target


def check_layers(tree, findings):
    """An include names its layer from the root, and goes only upward."""
    for path in tree.ending(".h", ".cpp"):
        layer = layer_of(path)
        for line, ours, target in includes_of(tree, path):
            if not ours:
                for prefix, doors in DOORS.items():
                    if layer and target.startswith(prefix) and not path.startswith(doors):
                        findings.error(path, line, f"<{target}> is included only by {doors[0]}*")
                continue
            if not tree.exists(target):
                findings.error(path, line, f'"{target}" is no file; includes start at the root')
                continue
            if layer is None or path == MAIN:
                continue
            other = layer_of(target)
            if other is None:
                findings.error(path, line, f'"{target}" is in no layer; {layer} may not include it')
            elif other != layer and other not in LAYERS[layer]:
                findings.error(path, line, f"{layer} may not include {other}")
            elif other == layer and layer in ROOMS:
                check_room(layer, path, line, target, findings)


def check_room(layer, path, line, target, findings):
    """Between two files of a layer that has rooms."""
    rooms = ROOMS[layer]
    own, other = (name[len(layer) + 1:].split("/")[0] for name in (path, target))
    for name, room in ((path, own), (target, other)):
        if room not in rooms:
            findings.error(name, 1, f"{layer} has no room {room!r}")
            return
    if rooms.index(other) > rooms.index(own):
        findings.error(path, line, f"{layer}/{own} may not include {layer}/{other}")


def check_services(tree, findings):
    """A file includes the headers of the services that it uses, or its own header does."""
    if SERVICES not in tree.files:
        return
    headers = {}
    for name, header in re.findall(r"(\w+);\s*// (\S+\.h)\b", tree.text(SERVICES)):
        headers[name] = header if tree.exists(header) else "proxy/" + header
    for path in tree.ending(".h", ".cpp"):
        if not path.startswith("proxy/") or path in (SERVICES, SERVICES_OWNED):
            continue
        own_header = os.path.splitext(path)[0] + ".h"
        included = {path} | {target for name in {path, own_header} & set(tree.files)
                             for _, _, target in includes_of(tree, name)}
        if SERVICES_OWNED in included:
            if path not in SERVICES_OWNERS:
                findings.error(path, 1, f"only {' and '.join(SERVICES_OWNERS)} own all services: include those used")
            continue
        for number, line in enumerate(tree.lines(path), 1):
            for name in re.findall(r"\bshared_?\.(\w+)", line.split("//", 1)[0]):
                if name in headers and headers[name] not in included:
                    included.add(headers[name])
                    findings.error(path, number, f"uses shared.{name} without including {headers[name]}")


def check_headers(tree, findings):
    for path in tree.ending(".h"):
        if not re.search(r"^#pragma once$", tree.text(path), re.M):
            findings.error(path, 1, "no #pragma once")
        if not tree.text(path).startswith(("//", "/*")):
            findings.error(path, 1, "the first line must begin a comment that says what this is")


def check_banned(tree, findings):
    for pattern, why, allowed, endings in BANNED:
        for path in tree.ending(*endings):
            if path.startswith(allowed + ("tests/tidy/",)):
                continue
            text = tree.text(path)
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                findings.error(path, line, f'"{" ".join(match.group(0).split())}": {why}')


def check_awaits(tree, findings):
    """No call is awaited inside a condition or an argument, nor given a Result's error() (proxy/README.md, "Coroutines")."""
    for path in tree.ending(".h", ".cpp"):
        text = tree.text(path)
        for match in re.finditer(r"\bco_await\s+[\w:.>*-]+\(", text):
            before = re.split(r"[;{}]", text[:match.start()][-2000:])[-1]
            before = re.sub(r"//.*", "", before)
            before = re.sub(r"\bSPILLWAY_CO_TRY\(\w+,\s*$", "", before)  # an initialiser
            line = text.count("\n", 0, match.start()) + 1
            if re.search(r"(\.|->)error\(\)", text[match.end():].partition(";")[0]):
                findings.error(path, line, "error() is a copy that owns memory: name the task first")
            if before.count("(") > before.count(")") or re.search(r"[?!&|]\s*$", before):
                findings.error(path, line, "a call is awaited inside an expression: name the task first")


def listed_sources(tree):
    """The .cpp files that CMakeLists.txt name, and (file, line, name) of those that are missing."""
    listed, missing = set(), []
    for path in tree.ending("CMakeLists.txt"):
        folder = os.path.dirname(path)
        for number, line in enumerate(tree.lines(path), 1):
            line = line.split("#", 1)[0]
            for word in re.findall(r"[^\s()\"]+\.cpp\b", line):
                plain = re.sub(r"^\$\{(CMAKE_SOURCE_DIR|PROJECT_SOURCE_DIR)\}/", "", word)
                from_root = plain != word
                plain = re.sub(r"^\$\{CMAKE_CURRENT_SOURCE_DIR\}/", "", plain)
                if "$" in plain:
                    continue
                name = os.path.normpath(plain if from_root else os.path.join(folder, plain))
                name = name.replace(os.sep, "/")
                if tree.exists(name):
                    listed.add(name)
                else:
                    missing.append((path, number, plain))
    return listed, missing


def named_by_stem(tree, path):
    """Some CMakeLists.txt between the file and the root loops over names: foreach(name …)."""
    stem = os.path.splitext(os.path.basename(path))[0]
    folder = os.path.dirname(path)
    while True:
        lists = os.path.join(folder, "CMakeLists.txt").replace(os.sep, "/")
        if lists in tree.files and re.search(
                r"foreach\s*\([^)]*\b" + re.escape(stem) + r"\b", tree.text(lists)):
            return True
        if not folder:
            return False
        folder = os.path.dirname(folder)


def check_dead_files(tree, findings):
    listed, missing = listed_sources(tree)
    for path, line, name in missing:
        findings.error(path, line, f"{name} does not exist")
    for path in tree.ending(".cpp"):
        if path not in listed and not named_by_stem(tree, path):
            findings.error(path, 1, "no CMakeLists.txt lists this file")
    included = {target for path in tree.ending(".h", ".cpp")
                for _, ours, target in includes_of(tree, path) if ours}
    for path in tree.ending(".h"):
        if path not in included:
            findings.error(path, 1, "nothing includes this file")


def check_columns(tree, findings):
    for path in tree.ending(".h", ".cpp"):
        for number, line in enumerate(tree.lines(path), 1):
            if len(line) > COLUMNS_MAX:
                findings.error(path, number, f"{len(line)} columns; at most {COLUMNS_MAX}")


def paths_in_readme(line):
    """The files that a line of Markdown names: link targets, `paths` and `./commands`."""
    for target in re.findall(r"\]\(([^)\s]+)\)", line):
        target = target.split("#", 1)[0]
        if target and "://" not in target:
            yield target
    for words in re.findall(r"`([^`]+)`", line):
        first = words.split()[0] if words.split() else ""
        if not README_PATH.match(first):
            continue
        is_path = "/" in first and " " not in words and first.endswith(README_ENDINGS)
        if is_path or (first.startswith("./") and not first.startswith("./build")):
            yield first


def check_readmes(tree, findings):
    for path in tree.ending(".md"):
        folder = os.path.dirname(path)
        fenced = False
        for number, line in enumerate(tree.lines(path), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
                continue
            if fenced:
                first = line.split()[0] if line.split() else ""
                names = [first] if README_PATH.match(first) and first.startswith("./") \
                    and not first.startswith("./build") else []
            else:
                names = paths_in_readme(line)
            for name in names:
                here = os.path.normpath(os.path.join(folder, name))
                if not tree.exists(here) and not tree.exists(os.path.normpath(name)):
                    findings.error(path, number, f"{name} does not exist")


# The most lines of a document: the first row that matches its path.
LINES_MAX = (
    (re.compile(r"README\.md"), 120),
    (re.compile(r"tests/README\.md"), 60),
    (re.compile(r"bench/README\.md"), 100),
    (re.compile(r"proxy/README\.md|conf/manual/[^/]+\.md"), 250),
    (re.compile(r"(allocator|cursor|proxy/.+)/README\.md"), 40),  # a layer or a room
)


def check_lengths(tree, findings):
    """A document is short enough to be read; what only its code needs stands in the headers."""
    for path in tree.ending(".md"):
        most = next((most for pattern, most in LINES_MAX if pattern.fullmatch(path)), None)
        lines = tree.text(path).count("\n")
        if most is not None and lines > most:
            findings.error(path, lines, f"{lines} lines; at most {most}")


CHECKS = (check_layers, check_services, check_headers, check_banned, check_awaits, check_dead_files, check_columns,
          check_readmes, check_lengths)


def run(root):
    findings = Findings()
    tree = Tree(root)
    for check in CHECKS:
        check(tree, findings)
    return findings


def main(arguments):
    here = os.path.dirname(os.path.abspath(__file__))
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(here))
    findings = run(root)
    for line in findings.errors:
        print(line)
    print(f"tidy: {len(findings.errors)} errors")
    return 1 if findings.errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
