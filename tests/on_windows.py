"""The tests on Windows (`make test-windows`), and the one table of what they leave out there, by name and reason.

python -m tests.on_windows SCRIPT [PATH ...]     run them by a script that runs a command of Python on Windows

A row is a file, or a file and the beginning of a test's name. What does not exist there has a reason that begins with
"not there"; what the stand-in for Windows of this project's machine lacks begins with "Wine" and names the call.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from .engines.brokers import started
from .interop.mcp.environments import Missing, for_windows

ROOT = Path(__file__).parents[1]

TERMINAL = "not there: pseudo-terminals of POSIX"
UNIX = "not there: Unix sockets"
SIGNALS = "not there: signals of POSIX between processes"
HANGUP = "not there: SIGHUP"
CONSOLE = "not there: signals to a child without a console"
SHELL = "not there: a POSIX shell"
RIGHTS = "not there: the bits of a mode"
ACTIVATION = "not there: sockets of a service manager"
WORKERS = "not there: workers"
MODES = "not there: bits of a mode, and first lines, that say whether a file is run"
LIMITS = "not there: limits of a process (setrlimit)"
PROC = "not there: /proc"
CLOCK = "not there: a monotonic clock finer than 16 ms"
UNSENT = "not there: how many bytes the system has not sent"
STREAMS = "not there: sockets as standard input and output"
STACK = "not there: a stack of 8 MiB, for values that are deeper than a message can be"
FORKS = "not there: fork"
RENAMED = "not there: renaming a file that SQLite has open"
HIDDEN = "Wine: CreateProcess with CREATE_NO_WINDOW, whose console keeps the pipes that the program closes"
"""p = Popen([python, "-c", "import os, sys; os.close(1); sys.stdin.read()"], stdin=PIPE, stdout=PIPE, creationflags=F);
p.stdout.read() returns with F = 0, and does not with F = CREATE_NO_WINDOW."""

UNREACHABLE = "Wine: WSARecv on a connected UDP socket, never completed again once a datagram was refused"
"""s.connect(nobody); s.send(b"x"); await sleep(0.1); await loop.sock_recv(s, 9) goes on waiting, also when a socket
that is now bound at nobody's address sends to s. Windows says that the connection was reset."""
NODE = "the stand-in for Windows has no Node"
MOSQUITTO = "the stand-in for Windows has no programs of Mosquitto"
NGINX = "the stand-in for Windows has no nginx"
FASTMCP = "the official SDK stands for peers in Python there"
PACKAGE = "the stand-in for Windows has no package"
FOREIGN = "Wine: CreateProcess, which starts programs of Linux that PATH names; they do not know its paths"
"""run(["mosquitto", "-c", path]) with a `path` that open(path) reads says that it cannot open that file; Windows has no
mosquitto there."""

SKIPPED: dict[str, str] = {
    "tests/auth/client/test_store.py::test_files_are_their_owner_s_alone_whatever_the_umask": RIGHTS,
    "tests/auth/client/test_store.py::test_a_folder_that_others_may_enter_is_closed_to_them": RIGHTS,
    "tests/auth/client/test_store.py::test_a_folder_of_another_user_is_refused": RIGHTS,
    "tests/auth/client/test_store.py::test_a_file_that_others_could_change_is_refused_and_a_link_not_followed": RIGHTS,
    "tests/auth/peers/test_protected.py::test_our_client_logs_in_for_a_protected_server_of_others[fastmcp": FASTMCP,
    "tests/auth/peers/test_sdk.py::test_an_official_client_logs_in_and_steps_up[ts2": NODE,
    "tests/auth/test_behind_a_guard.py::test_the_process_at_a_unix_socket": UNIX,
    "tests/cli/test_activation.py": ACTIVATION,
    "tests/net/test_service_manager.py": ACTIVATION,
    "tests/cli/test_completion.py": SHELL,
    "tests/cli/test_examples.py::test_an_example_runs[top run/admin.sock": UNIX,
    "tests/cli/test_exit_status.py::test_a_failure_that_cannot_be_told_keeps_its_status": SHELL,
    "tests/cli/test_exit_status.py::test_a_full_disk_is_said_in_one_sentence": SHELL,
    "tests/cli/test_exit_status.py::test_a_server_without_standard_streams": SHELL,
    "tests/cli/test_exit_status.py::test_closed_streams_are_as_good_as_none": SHELL,
    "tests/cli/test_exit_status.py::test_too_few_files_are_told_in_one_sentence": LIMITS,
    "tests/cli/test_help.py::test_bash_completes": SHELL,
    "tests/cli/test_hostile.py::test_workers_that_cannot_be": WORKERS,
    "tests/cli/test_hostile.py::test_listening_ends_where_nobody_reads": SHELL,
    "tests/cli/test_mcp.py::test_progress_at_a_terminal": TERMINAL,
    "tests/cli/test_mcp.py::test_questions_at_a_terminal": TERMINAL,
    "tests/cli/test_mcp.py::test_ctrl_c_ends_a_question": TERMINAL,
    "tests/cli/test_new.py::test_the_commands_of_a_services_readme_run": SHELL,
    "tests/cli/test_new.py::test_the_commands_of_a_servers_readme_run": SHELL,
    "tests/cli/test_new.py::test_a_judge_of_servers_finds_nothing_to_better": f"{PACKAGE} mcpscore",
    "tests/cli/test_new.py::test_the_code_is_clean": f"{PACKAGE} ruff",
    "tests/cli/test_console.py::test_a_console_is_found_and_calls[more1]": WORKERS,
    "tests/cli/test_log.py::test_every_line_of_a_start_is_json[('--workers', '2')]": WORKERS,
    "tests/cli/test_log.py::test_what_is_for_information_is_not_told_to_who_wants_warnings[('--workers', '2')": WORKERS,
    "tests/cli/test_metrics.py::test_workers_are_added_up_and_counters_never_fall": WORKERS,
    "tests/cli/test_serve_collector.py::test_spans_go_to_the_collector_and_lines_have_their_trace[options1]": WORKERS,
    "tests/cli/test_serve_collector.py::test_each_worker_sends_as_itself": WORKERS,
    'tests/cli/test_serve_config.py::test_every_fault_is_told_at_once[admin = "none/x.sock"]': UNIX,
    "tests/cli/test_serve_config.py::test_sighup_reads_the_certificate_again_and_connections_live": HANGUP,
    "tests/cli/test_serve_config.py::test_sighup_names_what_needs_a_restart_and_a_fault_changes_nothing": HANGUP,
    "tests/cli/test_serve_config.py::test_sighup_changes_what_one_process_can_change": HANGUP,
    "tests/cli/test_serve.py::test_told_to_end_while_the_old_child_drains": CONSOLE,
    "tests/cli/test_serve_config.py::test_every_fault_is_told_at_once[workers = 0]": WORKERS,
    "tests/cli/test_serve_config.py::test_the_file_of_the_manual_is_in_order": WORKERS,
    "tests/cli/test_serve_config.py::test_workers_read_all_of_it_again": WORKERS,
    "tests/cli/test_serve_crossings.py::test_a_server_under_reload_serves_and_is_started_again_by_sighup": HANGUP,
    "tests/cli/test_serve_crossings.py::test_sighup_of_a_supervisor[workers]": HANGUP,
    "tests/cli/test_serve_crossings.py::test_sighup_of_one_process[workers]": HANGUP,
    "tests/cli/test_tasks.py::test_questions_are_answered_at_a_terminal": TERMINAL,
    "tests/cli/test_terminal.py": TERMINAL,
    "tests/cli/test_top.py": TERMINAL,
    "tests/cli/test_large_blocks.py": LIMITS,
    "tests/cli/doctor/test_faults.py::test_commands[{folder}/plain.py": MODES,
    "tests/cli/doctor/test_faults.py::test_commands[{folder}/lost.py": MODES,
    "tests/cli/doctor/test_faults.py::test_commands[{python} {folder}/deaf.py": HIDDEN,
    "tests/cli/doctor/test_faults.py::test_no_unix_socket": UNIX,
    "tests/cli/test_demo.py::test_a_broker_is_started_and_ended": FOREIGN,
    "tests/console/test_opening.py::test_a_folder_of_others_lists_nothing_and_stops_nothing": RIGHTS,
    "tests/console/test_opening.py::test_what_is_listed_is_its_owner_s_alone": RIGHTS,
    "tests/console/test_replicas.py::test_workers_answer_their_supervisor_by_pipe_and_other_consoles_by_bus": WORKERS,
    "tests/console/test_tasks.py::test_tasks_of_workers_are_answered_over_their_pipes": WORKERS,
    "tests/console/test_workers.py": WORKERS,
    "tests/engines/mqtt/test_wire.py::test_users_passwords_and_rights": MOSQUITTO,
    "tests/mcp/client/test_negotiation.py::test_a_server_that_cannot_start_is_started_once": UNSENT,
    "tests/interop/mcp/test_peers.py::test_a_pair[everything": NODE,
    "tests/interop/mcp/test_peers.py::test_a_pair[fastmcp": FASTMCP,
    "tests/interop/mcp/test_peers.py::test_a_pair[ts1": NODE,
    "tests/interop/mcp/test_peers.py::test_a_pair[ts2": NODE,
    "tests/mcp/extensions/events/peers/test_aisdk.py": NODE,
    "tests/mcp/extensions/tasks/test_hosts.py": NODE,
    "tests/mcp/extensions/events/test_store_faults.py::test_a_file_that_may_not_be_written_is_not_opened": RIGHTS,
    "tests/mcp/extensions/events/test_store_faults.py::test_who_cannot_be_served_is_told_so_and_nothing_is_half_done"
    "[removed]": RENAMED,
    "tests/mcp/extensions/events/test_store_faults.py::test_who_cannot_be_served_is_told_so_and_nothing_is_half_done"
    "[replaced]": RENAMED,
    "tests/mcp/session/test_replica_nginx.py": UNIX,
    "tests/mcp/session/test_replica_workers.py": WORKERS,
    "tests/net/test_reconnect.py::test_a_connection_is_made_again_and_each_step_is_reported": CLOCK,
    "tests/net/test_sending.py::test_who_reads_too_slowly_is_noticed": UNSENT,
    "tests/net/test_urls.py::test_what_is_neither_url_nor_command": SHELL,
    "tests/rpc/binding/test_json_schema.py::test_values_that_are_deep[10000]": STACK,
    "tests/rpc/test_draining.py::test_the_calls_of_a_killed_program_end_on_a_unix_socket": UNIX,
    "tests/rpc/test_process.py::test_a_process_that_it_forks_does_not_use_its_pipe": FORKS,
    "tests/store/test_database.py::test_a_file_that_was_removed_or_replaced_takes_no_writes": RENAMED,
    "tests/system/test_datagrams.py::test_it_reads_on_after_a_report_that_a_datagram_did_not_arrive": UNREACHABLE,
    "tests/tasks/test_sqlite.py::test_a_file_that_may_not_be_written_is_not_opened": RIGHTS,
    "tests/tasks/test_sqlite.py::test_a_file_that_was_removed_is_lost": RENAMED,
    "tests/telemetry/test_process.py::test_they_are_on_the_page": PROC,
    "tests/transports/http/test_nginx.py": NGINX,
    "tests/transports/test_real_ends.py::test_a_child_and_its_death": SIGNALS,
    "tests/transports/test_real_ends.py::test_udp_without_a_far_end": UNREACHABLE,
    "tests/transports/test_udp.py::test_without_a_listener_the_calls_in_flight_fail_and_the_next_may_succeed": UNREACHABLE,
    "tests/transports/stream/test_channel.py::test_permissions_hold": UNIX,
    "tests/transports/stream/test_channel.py::test_a_stale_socket_is_replaced_and_a_live_one_is_not": UNIX,
    "tests/transports/stream/test_channel.py::test_what_is_not_a_socket_is_never_removed": UNIX,
    "tests/transports/stream/test_channel.py::test_only_our_own_file_is_removed": UNIX,
    "tests/transports/stream/test_channel.py::test_a_relative_path_is_found_again_after_a_change_of_folder": UNIX,
    "tests/transports/stream/test_channel.py::test_a_door_that_cannot_be_opened_is_one_sentence[url3": UNIX,
    "tests/transports/stream/test_stdio.py::test_kill_9": SIGNALS,
    "tests/transports/stream/test_stdio.py::test_sigterm_comes_before_sigkill": SIGNALS,
    "tests/transports/stream/test_stdio.py::test_a_signal_without_a_name": SIGNALS,
    "tests/transports/stream/test_stdio.py::test_without_pidfd_a_thread_waits": PROC,
    "tests/transports/stream/test_stdio.py::test_a_socket_for_both": STREAMS,
    "tests/transports/stream/test_stdio.py::test_blocking_is_as_before_afterwards": STREAMS,
    "tests/transports/stream/test_stdio.py::test_a_terminal_and_it_is_left_as_it_was": TERMINAL,
    "tests/transports/stream/test_stdio.py::test_no_standard_input": SHELL,
    "tests/transports/stream/test_stdio.py::test_a_child_that_closes_its_output_has_finished": HIDDEN,
    "tests/transports/stream/test_stdio.py::test_a_child_that_closes_its_input_is_broken": HIDDEN,
}

OF_EVENTS = "both hostile killed polling restart signing store_faults streams webhooks"
if find_spec("standardwebhooks") is None:
    SKIPPED |= {
        f"tests/mcp/extensions/events/test_{one}.py": f"{PACKAGE} standardwebhooks" for one in OF_EVENTS.split()
    }
    SKIPPED["tests/console/test_subscriptions.py"] = f"{PACKAGE} standardwebhooks"
if find_spec("mcp_webhook_events") is None:
    SKIPPED["tests/rpc/events/test_subscribing.py::test_one_emit_reaches_peers_and_clients_of_mcp"] = (
        f"{PACKAGE} mcp-webhook-events"
    )
    SKIPPED["tests/mcp/extensions/events/test_peer.py"] = f"{PACKAGE} mcp-webhook-events"


def left_out(node: str) -> str:
    """The reason for which a test or file is left out; "" if it is not."""
    for row, why in SKIPPED.items():
        if node == row or node.startswith(tuple(row + after for after in ("::", "[", "]", "-", " "))):
            return why
    return ""


def ignores(path: Path) -> bool:
    """Whether a file is left out, which may not even be imported there."""
    return path.is_file() and path.resolve().is_relative_to(ROOT) and bool(left_out(_node(path)))


def _node(path: Path) -> str:
    return path.resolve().relative_to(ROOT).as_posix()


def mark(items: list[pytest.Item]) -> None:
    """Skip what the table leaves out, and what is for Unix sockets in a table of wires."""
    for item in items:
        if why := left_out(item.nodeid.replace("\\", "/")):
            item.add_marker(pytest.mark.skip(reason=why))
        elif "[" in item.nodeid and "unix" in item.nodeid.partition("[")[2]:
            item.add_marker(pytest.mark.skip(reason=UNIX))


ROOMS = (
    "tests/jsonrpc",
    "tests/system",
    "tests/transports/stream",
    "tests/net",
    "tests/transports",
    "tests/store",
    "tests/tasks",
    "tests/engines",
    "tests/telemetry",
    "tests/console",
    "tests/rpc",
    "tests/auth",
    "tests/mcp",
    "tests/cli",
    "tests/interop/mcp/test_peers.py",
)
"""Each runs in a process of its own, so that a standstill ends its own room alone."""


@contextmanager
def brokers() -> Iterator[None]:
    """Run the brokers that this system has; the tests find them by variables of the environment."""
    with ExitStack() as running:
        for name in ("rabbitmq", "mosquitto", "nats", "redis"):
            with suppress(pytest.skip.Exception, pytest.fail.Exception):  # the tests say it
                one = running.enter_context(started(name))
                os.environ[f"DRAGOMAN_TEST_{one.scheme.upper()}"] = one.url
        yield


def main(script: str, rooms: list[str]) -> int:
    """Run the tests of these rooms. Without a script, or where it can make no Python, say so; that is no failure."""
    if not Path(script).is_file():
        print(f"test-windows: there is no {script}, so nothing is tested on Windows")
        return 0
    if subprocess.run([script, "python -c pass"], cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode:
        print("test-windows: no Python for Windows could be made here, so nothing is tested on Windows")
        return 0
    for peer in ("mcp1", "mcp2", "webhooks"):
        with suppress(Missing):  # the tests say it
            for_windows(peer)
    subprocess.run([script, "python -m tests.kept_imports"], cwd=ROOT, stdin=subprocess.DEVNULL, check=True)
    with brokers():
        failed = [room for room in rooms or ROOMS if not passes(script, room)]
    print(f"test-windows: {', '.join(failed)} failed" if failed else "test-windows: all passed")
    return 1 if failed else 0


def passes(script: str, room: str) -> bool:
    """Whether the tests of a room pass."""
    within = [f"--ignore={one}" for one in ROOMS if one != room and one.startswith(f"{room}/")]
    words = ["python -m pytest -q -p no:cacheprovider --timeout 120 -n 2 --dist worksteal", *within, room]
    return subprocess.run([script, " ".join(words)], cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
