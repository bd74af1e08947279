"""Runs inside a container, sent with the call: reads what systemd and the health pages say, prints it as JSON."""

import json
import subprocess
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 5


def unit_state(unit: str) -> str:
    """The word of systemd for the unit: active, failed, inactive, activating …"""
    asked = subprocess.run(["systemctl", "is-active", unit], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or asked.stderr.strip()


def health(port: int, path: str) -> "int | str":
    """The HTTP status of the service's health page, or the words of the failure."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (urllib.error.URLError, OSError) as error:
        return str(getattr(error, "reason", error))


def main() -> None:
    """Answer for every service of the request in the first argument."""
    answer = {}
    for service in json.loads(sys.argv[1]):
        answer[service["address"]] = {
            "unit": unit_state(service["unit"]) if service["unit"] else None,
            "health": health(service["port"], service["health"]) if service["health"] else None,
        }
    sys.stdout.write(json.dumps(answer))


main()
