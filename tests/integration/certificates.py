"""Certificates for tests of TLS, made by openssl(1) into a folder."""

import subprocess

PASSWORD = "open sesame"


class Certificates:
    """Paths of PEM files. The CA's server is localhost and 127.0.0.1."""

    def __init__(self, folder):
        self.folder = folder
        self.ca, self.other_ca = self._authority("ca"), self._authority("other-ca")
        self.server = self._issue("server", "ca", "DNS:localhost,IP:127.0.0.1")
        self.elsewhere = self._issue("elsewhere", "ca", "DNS:example.org")
        self.client = self._issue("client", "ca", "DNS:client")
        self.stranger = self._issue("stranger", "other-ca", "DNS:stranger")

    def _path(self, name):
        return str(self.folder / name)

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)

    def _authority(self, name):
        self._openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                      "-subj", f"/CN={name}", "-keyout", self._path(name + ".key"),
                      "-out", self._path(name + ".pem"),
                      "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        return self._path(name + ".pem")

    def issue(self, name, authority="ca", alternatives="DNS:localhost,IP:127.0.0.1", days=2):
        """Makes another: certificate and key in one file. It ends `days` from now (below 0: it
        has)."""
        return self._issue(name, authority, alternatives, days)

    def _issue(self, name, authority, alternatives, days=2):
        key, request = self._path(name + ".key"), self._path(name + ".csr")
        certificate, extensions = self._path(name + ".crt"), self._path(name + ".ext")
        self._openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
                      "-keyout", key, "-out", request)
        with open(extensions, "w") as out:
            out.write(f"subjectAltName={alternatives}\nbasicConstraints=CA:FALSE\n")
        self._openssl("x509", "-req", "-in", request, "-days", str(days), "-extfile", extensions,
                      "-CA", self._path(authority + ".pem"),
                      "-CAkey", self._path(authority + ".key"), "-CAcreateserial",
                      "-out", certificate)
        both = self._path(name + ".pem")
        with open(both, "w") as out:
            for part in (certificate, key):
                with open(part) as text:
                    out.write(text.read())
        return both
