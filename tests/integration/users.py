"""Users of a proxy under test, made by the proxy's own --hash-password."""

import json
import re
import subprocess


def user_entry(binary, name, password, *roles, db="admin"):
    """An entry of security.users; a role is (role, db)."""
    made = subprocess.run([str(binary), "--hash-password", name], input=password + "\n",
                          capture_output=True, text=True, timeout=60, check=True)
    credentials = {}
    for mechanism, fields in re.findall(r"(SCRAM-SHA-\d+): \{(.*?)\}", made.stdout, re.S):
        pairs = re.findall(r'(\w+): "?([^",]+)"?', fields)
        credentials[mechanism] = {k: int(v) if v.isdigit() else v for k, v in pairs}
    assert f"user: {json.dumps(name, ensure_ascii=False)}" in made.stdout and len(credentials) == 2
    return {"user": name, "db": db, "credentials": credentials,
            "roles": [{"role": role, "db": on} for role, on in roles]}


def certificate_user(subject, *roles):
    return {"user": subject, "db": "$external",
            "roles": [{"role": role, "db": on} for role, on in roles]}


def without_secrets(text, *secrets):
    """Whether none of the secrets stands in a text, however it is written down."""
    return not any(secret in text or json.dumps(secret)[1:-1] in text for secret in secrets)
