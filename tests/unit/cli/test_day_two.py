"""A lab that is there: what has changed is found, named and mended, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.reconcile.runner import TaskEvent
from provisioner.values.errors import ProviderError
from provisioner.values.state import Status
from tests.unit.cli.conftest import ENGINE_KEY, FILE, World

EDITED = [["paths", "/etc/litellm/config.yaml", "edited"]]
PROOF = TaskEvent("failed", "llama", "llama_cpp", "llama_cpp : verify | Complete", "no answer")


def snapshots(world: World, name: str) -> list[str]:
    return [one.name for one in world.host.containers[name].instance.snapshots]


def test_nothing_changed_runs_no_playbook(up: World) -> None:
    answer = up.done("up")
    assert up.played == []
    assert answer.printed == up.snapshot


def test_drift_is_planned_with_its_reason_and_only_it_is_configured(up: World) -> None:
    up.drift["gateway/litellm"] = EDITED
    planned = up.command("plan", "--json", "--detailed-exitcode")
    assert planned.code == 2
    (change,) = planned.of("planned_change")
    assert (change["target"], change["action"]) == ("gateway/litellm", "configure")
    assert change["reason"] == "/etc/litellm/config.yaml: edited"
    assert up.command("status").printed == up.snapshot
    up.done("up", "--yes")
    assert up.played == [("site.yml", ["containers/gateway", "service_litellm/gateway"])]
    up.played.clear()
    assert up.command("up").code == 0
    assert up.played == []


def test_a_changed_option_runs_its_role_only(up: World, lab: Path) -> None:
    lab.write_text(FILE.replace("model: tiny,", "model: tiny, parallel: 2,"))
    planned = up.command("plan").out
    assert planned == up.snapshot
    (change,) = up.command("plan", "--json").of("planned_change")
    assert change["meanwhile"] == "nobody waits: a changed one is started beside it and takes over"
    lab.write_text(FILE.replace("model: tiny,", "model: tiny, beside: false,"))
    (change,) = up.command("plan", "--json").of("planned_change")
    assert change["meanwhile"] == "requests wait meanwhile, for up to 2m"
    lab.write_text(FILE.replace("model: tiny,", "model: tiny, parallel: 2,"))
    assert up.command("up", "--yes").code == 0
    assert up.played == [("site.yml", ["containers/llama", "service_llama_cpp/llama"])]


def test_a_changed_secret_is_noticed_and_never_said(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_ENGINE_KEY", "canary-other-9a-0123")
    answer = up.command("plan")
    assert answer.printed == up.snapshot
    assert "canary" not in answer.out
    stored = b"".join(up.host.containers["llama"].files.values()).decode()
    assert ENGINE_KEY not in stored


def test_full_runs_everything_again(up: World) -> None:
    assert up.command("up", "--yes", "--full").code == 0
    assert [name for name, _ in up.played] == ["site.yml"]
    assert "service_llama_cpp/llama" in up.played[0][1]


def test_a_started_container_that_is_as_it_was_needs_no_ansible(up: World) -> None:
    assert up.command("down", "--yes").code == 0
    assert up.command("up", "--yes").code == 0
    assert up.played == []


def test_a_change_in_place_keeps_what_is_inside(up: World, lab: Path) -> None:
    lab.write_text(FILE.replace("  llama:\n", "  llama:\n    memory: 3GiB\n"))
    up.done("up", "--yes")
    assert up.host.containers["llama"].instance.memory == 3 * 2**30
    assert up.played == []
    assert snapshots(up, "llama") == ["provision-1"]
    assert snapshots(up, "gateway") == []


def test_a_failed_proof_is_rolled_back_by_itself(up: World, lab: Path) -> None:
    stamp = up.host.containers["llama"].files["stamp/llama_cpp"]
    lab.write_text(FILE.replace("model: tiny,", "model: tiny, parallel: 2,"))
    up.failures["site.yml"] = (PROOF,)
    up.changes = {"llama": 3}
    assert up.command("up", "--yes").ended(3) == up.snapshot
    assert up.host.containers["llama"].files["stamp/llama_cpp"] == stamp
    assert snapshots(up, "llama") == ["provision-1", "provision-2-failed"]
    assert snapshots(up, "gateway") == []
    assert up.command("plan").printed == up.snapshot


def test_what_ansible_cannot_reach_after_a_change_goes_back_too(
    up: World, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(name: str) -> dict[str, str]:
        raise ProviderError(f"Unable to reach container {name} at 192.0.2.3 by ssh", resolution="Look at its sshd.")

    monkeypatch.setattr(up.host, "connection_variables", refused)
    text = FILE.replace("model: tiny,", "model: tiny, parallel: 2,")
    lab.write_text(text.replace("  llama:\n", "  llama:\n    memory: 3GiB\n"))
    assert up.command("up", "--yes").ended(1) == up.snapshot
    assert up.host.containers["llama"].instance.memory != 3 * 2**30


def test_where_only_the_newest_state_can_be_gone_back_to_the_failed_one_is_given_up_and_said(
    up: World, lab: Path
) -> None:
    up.host.newest_only = True
    lab.write_text(FILE.replace("model: tiny,", "model: tiny, parallel: 2,"))
    up.failures["site.yml"] = (PROOF,)
    up.changes = {"llama": 3}
    assert up.command("up", "--yes").ended(3) == up.snapshot
    assert snapshots(up, "llama") == ["provision-1"]
    assert up.command("rollback", "llama", "--to", "provision-1", "--yes").ended(0) == up.snapshot


@pytest.mark.parametrize(
    ("changed", "options", "left"),
    [(0, (), ["provision-1"]), (3, ("--no-rollback",), [])],
    ids=["nothing was changed", "no rollback"],
)
def test_what_failed_is_left_alone(
    up: World, lab: Path, changed: int, options: tuple[str, ...], left: list[str]
) -> None:
    lab.write_text(FILE.replace("model: tiny,", "model: tiny, parallel: 2,"))
    up.failures["site.yml"] = (PROOF,)
    up.changes = {"llama": changed}
    assert up.command("up", "--yes", *options).ended(3) == up.snapshot
    assert snapshots(up, "llama") == left


def test_a_plan_says_that_there_is_no_way_back(up: World, lab: Path) -> None:
    up.host.obstacles["llama"] = "a folder of the host is mounted in it"
    assert "no way back" not in up.command("plan").err
    lab.write_text(FILE.replace("model: tiny,", "model: tiny, parallel: 2,"))
    assert up.command("plan").ended(0) == up.snapshot


def test_what_had_drifted_is_no_state_to_go_back_to(up: World) -> None:
    up.drift["llama/llama_cpp"] = EDITED
    up.failures["site.yml"] = (PROOF,)
    up.changes = {"llama": 3}
    assert up.command("up", "--yes").ended(3) == up.snapshot
    assert snapshots(up, "llama") == ["provision-1-unproved"]


def test_only_so_many_states_are_kept(up: World, lab: Path) -> None:
    lab.write_text(FILE + "snapshots: { keep: 2 }\n")
    for _ in range(4):
        up.drift["llama/llama_cpp"] = EDITED
        assert up.command("up", "--yes").code == 0
    assert snapshots(up, "llama") == ["provision-3-unproved", "provision-4-unproved"]


def test_a_container_that_cannot_be_kept_is_refused_unless_told(up: World, lab: Path) -> None:
    up.host.obstacles["llama"] = "it has a mount point"
    lab.write_text(FILE.replace("model: tiny,", "model: tiny, parallel: 2,"))
    assert up.command("up", "--yes").ended(4) == up.snapshot
    assert up.played == []
    assert up.command("up", "--yes", "--no-rollback").code == 0


def test_a_replacement_needs_its_name(up: World, lab: Path) -> None:
    lab.write_text(FILE.replace("  llama:\n", "  llama:\n    image: debian/13\n"))
    assert up.command("up", "--yes").ended(4) == up.snapshot
    assert up.command("up", typed="yes\n").code == 4
    assert up.host.containers["llama"].instance.image == "debian/12"
    assert up.command("up", typed="replace\n").code == 0
    assert up.host.containers["llama"].instance.image == "debian/13"
    lab.write_text(FILE)
    assert up.command("up", "--yes", "--replace", "llama").code == 0
    assert up.host.containers["llama"].instance.image == "debian/12"


def test_orphans_go_with_prune_only(up: World, lab: Path) -> None:
    engine_only = FILE[: FILE.index("  gateway:\n    services")]
    lab.write_text(engine_only)
    assert up.command("up", "--yes").code == 0
    assert "gateway" in up.host.containers
    assert up.command("plan", "--prune").printed == up.snapshot
    assert "gateway" in up.host.containers
    assert up.command("up", "--yes", "--prune").code == 0
    assert set(up.host.containers) == {"llama"}


def test_a_replacement_that_is_named_is_meant_beside_other_names(up: World) -> None:
    planned = up.command("plan", "llama", "--replace", "gateway", "--json")
    assert [(one["target"], one["action"]) for one in planned.of("planned_change")] == [("gateway", "replace")]


def test_a_service_that_left_the_file_is_told(up: World) -> None:
    up.leftovers = ["desktop"]
    assert up.command("plan").printed == up.snapshot
    assert {"type": "leftover", "target": "llama/desktop"} in up.command("plan", "--json").events


def test_an_exchanged_volume_goes_with_the_last_snapshot_that_needs_it(up: World, lab: Path) -> None:
    def volumes() -> set[str]:
        return {name for name in up.host.volumes if "llama-cpp" in name}

    (old,) = volumes()
    other = FILE.replace("model: tiny,", "model: tiny, build_options: [A=B],") + "snapshots: { keep: 1 }\n"
    lab.write_text(other)
    assert up.command("up", "--yes").code == 0
    assert old in volumes()
    assert len(volumes()) == 2
    up.drift["llama/llama_cpp"] = EDITED
    assert up.command("up", "--yes").code == 0
    assert old not in volumes()
    assert len(volumes()) == 1


def mounted(world: World) -> set[str]:
    """The builds that the engine's container has."""
    devices = world.host.containers["llama"].instance.devices
    return {device.properties["volume"] for device in devices if device.properties["path"].startswith("/opt/")}


def test_both_builds_are_mounted_until_the_service_has_gone_over(up: World, lab: Path) -> None:
    seen: list[set[str]] = []
    up.then = lambda: seen.append(mounted(up))
    (old,) = mounted(up)
    lab.write_text(FILE.replace("model: tiny,", "model: tiny, build_options: [A=B],"))
    assert up.command("plan").printed == up.snapshot
    up.done("up", "--yes")
    while_configured = seen[-1]
    assert old in while_configured
    assert len(while_configured) == 2
    assert mounted(up) == while_configured - {old}
    assert up.command("plan", "--detailed-exitcode").code == 0


def test_a_service_that_nobody_touched_goes_on_where_its_change_fails(up: World, lab: Path) -> None:
    before = up.host.containers["llama"].instance
    lab.write_text(FILE.replace("model: tiny,", "model: tiny, build_options: [A=B],"))
    up.failures["site.yml"] = (TaskEvent("failed", "llama", "llama_cpp", "llama_cpp : trial | Go on", "no answer"),)
    answer = up.command("up", "--yes")
    assert answer.code != 0
    assert answer.printed == up.snapshot
    assert up.host.containers["llama"].instance.devices == before.devices
    assert not [name for name in snapshots(up, "llama") if "failed" in name], "it did not go back"


def test_what_a_failed_service_may_still_use_stays_mounted_until_a_run_succeeds(up: World, lab: Path) -> None:
    (old,) = mounted(up)
    lab.write_text(FILE.replace("model: tiny,", "model: tiny, build_options: [A=B],"))
    up.failures["site.yml"] = (PROOF,)
    up.changes = {"llama": 2}
    assert up.command("up", "--yes", "--no-rollback").code != 0
    assert old in mounted(up)
    assert len(mounted(up)) == 2
    up.failures.clear()
    assert up.command("up", "--yes", "--no-rollback").code == 0
    assert old not in mounted(up)
    assert old not in up.host.volumes


def test_who_asks_a_changed_engine_and_fails_takes_it_back_with_it(up: World, lab: Path) -> None:
    lab.write_text(
        FILE.replace("model: tiny,", "model: tiny, parallel: 2,").replace("litellm: {", "litellm: { port: 4100,")
    )
    up.failures["site.yml"] = (TaskEvent("failed", "gateway", "litellm", "litellm : preflight | Check", "no"),)
    up.changes = {"llama": 2}
    assert up.command("up", "--yes").ended(1) == up.snapshot


def test_a_full_disk_is_told_and_the_next_run_looks_again(up: World) -> None:
    up.drift["gateway/litellm"] = EDITED
    up.disk_full = True
    del up.host.containers["gateway"].files["stamp/litellm"]
    assert up.command("up", "--yes").ended(0) == up.snapshot
    assert up.command("plan", "--detailed-exitcode").code == 2


def test_what_a_role_does_not_mend_is_told(up: World) -> None:
    drop_in = ["units", "litellm.service", "drop-ins is x, was none (stays as it is)"]
    up.drift["gateway/litellm"] = [*EDITED, drop_in]
    up.unmended = {"litellm": [drop_in]}
    assert up.command("up", "--yes").ended(0) == up.snapshot


def test_what_a_role_writes_anew_at_each_run_is_not_told_as_somebody_elses(up: World) -> None:
    up.drift["gateway/litellm"] = EDITED
    up.unmended = {"litellm": [["paths", "/etc/litellm/of-this-run", "edited"]]}
    answer = up.command("up", "--yes")
    assert (answer.code, answer.err) == (0, "")


def test_a_held_lock_exits_5_and_names_its_holder(up: World) -> None:
    from provisioner.reconcile.lock import held

    with held({"box": up.host}, "homelab", "up", say=lambda _text: None):
        for verb in (["up", "--yes"], ["down", "--yes"], ["destroy", "--yes", "--lab", "homelab"], ["snapshot"]):
            assert up.command(*verb).ended(5) == up.snapshot
        assert up.command("plan").code == 0
        assert up.command("status").code == 0
    assert up.command("up", "--yes").code == 0
    assert up.host.locks == {}


def test_an_interrupted_run_is_told_by_the_next_one(world: World) -> None:
    world.raises = KeyboardInterrupt()
    assert world.command("up", "--yes").code == 130
    world.raises = None
    assert "did not come to its end, while at: build" in world.command("up", "--yes").err
    assert "did not come to its end" not in world.command("up").err


def test_an_interruption_is_told_once_also_where_nothing_was_left_to_do(up: World) -> None:
    up.raises = KeyboardInterrupt()
    assert up.command("up", "--yes", "--full").code == 130
    assert up.command("up").printed == up.snapshot
    assert "did not come to its end" not in up.command("up").err


def test_a_snapshot_can_be_gone_back_to(up: World) -> None:
    assert up.command("snapshot", "--name", "good").code == 0
    up.host.containers["llama"].files["/broken"] = b"x"
    assert up.command("snapshot", "--list").printed == up.snapshot
    assert up.command("rollback", "llama", "--to", "good", "--yes").code == 0
    assert "/broken" not in up.host.containers["llama"].files
    assert snapshots(up, "llama") == ["good", "provision-1-replaced"]
    assert up.command("rollback", "llama", "--to", "provision-1-replaced", "--yes").code == 0
    assert "/broken" in up.host.containers["llama"].files


def test_a_rollback_asks_first(up: World) -> None:
    up.command("snapshot", "--name", "good")
    assert up.command("rollback", "llama").code == 4
    assert up.command("rollback", "llama", typed="n\n").code == 4
    assert snapshots(up, "llama") == ["good"]
    assert up.command("rollback", "llama", typed="y\n").code == 0


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (4, "rollback llama --yes"),
        (4, "rollback llama --to none --yes"),
        (64, "rollback lama --yes"),
        (64, "snapshot --name provision-7"),
        (64, "clone llama"),
        (1, "clone llama gateway"),
        (64, "up --yes --replace lama"),
    ],
)
def test_what_cannot_be_is_refused(up: World, code: int, line: str) -> None:
    assert up.command(*line.split()).ended(code) == up.snapshot


def test_a_clone_is_a_stopped_orphan(up: World) -> None:
    assert up.command("clone", "llama", "spare").code == 0
    assert up.host.containers["spare"].instance.status is Status.STOPPED
    assert up.command("plan").printed == up.snapshot


def test_a_cloned_stamp_does_not_count(up: World, lab: Path) -> None:
    up.command("clone", "llama", "spare")
    lab.write_text(FILE + "  spare: {services: {llama_cpp: {model: tiny, api_key: !secret engine_key}}}\n")
    up.command("up", "--yes")
    assert "service_llama_cpp/spare" in up.played[0][1]
    assert "service_llama_cpp/llama" not in up.played[0][1]
