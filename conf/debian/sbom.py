#!/usr/bin/env python3
"""Prints what a program of the package is made of, as SPDX 2.3 in JSON: the same for the same packages.

    sbom.py --version V --time SECONDS --header FILE... PROGRAM

Libraries are those that the loader takes here, with their Debian packages; a header names a package of which only headers
are used. What belongs to no package is an error.
"""

import argparse
import hashlib
import json
import platform
import re
import subprocess
import sys
import time
from pathlib import Path


def output_of(*command):
    return subprocess.run([str(each) for each in command], check=True, capture_output=True, text=True).stdout


def owner_of(path):
    """The package that a file belongs to; the loader and dpkg may call it by /lib or by /usr/lib."""
    other = path.removeprefix("/usr") if path.startswith("/usr/") else f"/usr{path}"
    for name in (path, other):
        found = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
        owned = [line for line in found.stdout.splitlines() if not line.startswith("diversion by ")]
        if owned:
            return owned[0].split(": ")[0]
    sys.exit(f"sbom.py: {path} belongs to no Debian package")


def described(package):
    """A Debian package as SPDX describes it."""
    release = platform.freedesktop_os_release()
    name, version, architecture, source, source_version = output_of(
        "dpkg-query", "-W", "-f", r"${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}",
        package).split("\t")
    place = f"arch={architecture}&distro={release['ID']}-{release.get('VERSION_ID', 'unstable')}"
    quoted = version.replace("+", "%2B").replace(":", "%3A").replace("~", "%7E")
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
        "name": name,
        "versionInfo": version,
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "sourceInfo": f"built from {source} {source_version}",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{name}@{quoted}?{place}"}],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", required=True)
    parser.add_argument("--time", type=int, required=True)
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("program")
    args = parser.parse_args()

    loaded = re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(0x", output_of("ldd", args.program), re.M)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", args.program)))
    ways = {}  # package -> how the program has it
    for name, path in loaded:
        if name in needed:
            ways[owner_of(path)] = "DYNAMIC_LINK"
        else:
            ways.setdefault(owner_of(path), "DEPENDS_ON")
    for path in args.header:
        ways.setdefault(owner_of(path), "STATIC_LINK")  # its templates are in the program
    if not needed or not args.header:
        sys.exit(f"sbom.py: {args.program}: no libraries, or no headers")

    parts = [(described(package), way) for package, way in sorted(ways.items())]
    program = {
        "SPDXID": "SPDXRef-spillway",
        "name": "spillway",
        "versionInfo": args.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "2026 the Spillway authors",
        "primaryPackagePurpose": "APPLICATION",
        "packageFileName": "usr/bin/spillway",
        "checksums": [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(Path(args.program).read_bytes()).hexdigest()}],
    }
    packages = [program] + [part for part, _ in parts]
    content = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"spillway-{args.version}",
        "documentNamespace": f"https://spillway.example.org/sbom/{args.version}/{content}",
        "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(args.time)),
                         "creators": ["Organization: Spillway maintainers", "Tool: sbom.py"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-spillway"},
            *({"spdxElementId": "SPDXRef-spillway", "relationshipType": way, "relatedSpdxElement": part["SPDXID"]}
              for part, way in parts)],
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
