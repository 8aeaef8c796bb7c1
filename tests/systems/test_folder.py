"""What is kept of the folder of a described system: what others need, and no secret."""

from pathlib import Path

import pytest

from tribunal.clusters.systems import folder as kept_files
from tribunal.clusters.systems.description import read_system
from tribunal.clusters.systems.folder import kept
from tribunal.results.described import DescribedFile

SYSTEM = """name = "s"
[nodes]
count = 1
start = ["{folder}/z/server", "--port", "{port}"]
hosts = "hosts.toml"
[client]
command = ["{python}", "{folder}/client.py"]
operations = ["read"]
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of a system."""
    folder = tmp_path / "s"
    (folder / "z").mkdir(parents=True)
    (folder / "system.toml").write_text(SYSTEM)
    (folder / "client.py").write_text("print()\n")
    (folder / "z" / "server").write_bytes(b"\x7fELF\0")
    return folder


def seen(place: Path) -> dict[str, DescribedFile]:
    files, _ = kept(place / "system.toml", read_system(place / "system.toml"), place / "runs" / "one")
    return {one.name: one for one in files}


def test_small_files_of_text_are_kept_and_of_others_the_hash_is_known(place: Path) -> None:
    files = seen(place)

    assert list(files) == ["client.py", "system.toml", "z/server"]  # what commands name goes first
    assert {name: (one.is_kept, one.why) for name, one in files.items()} == {
        "client.py": (True, None), "system.toml": (True, None), "z/server": (False, "it is no text"),
    }  # fmt: skip
    assert all(one.sha256 is not None for one in files.values())
    assert (place / "runs" / "one" / "system" / "client.py").read_text() == "print()\n"
    assert not (place / "runs" / "one" / "system" / "z").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("server.key", "abc", id="a key by its name"),
        pytest.param("id_ed25519", "abc", id="a key of ssh"),
        pytest.param("db-password.txt", "abc", id="a password by its name"),
        pytest.param("cert.txt", "-----BEGIN EC PRIVATE KEY-----\nabc\n", id="a private key"),
        pytest.param("users.py", 'login(password="hunter2")\n', id="a password in a program"),
        pytest.param("redis.conf", "port 1\nmasterpassword hunter2\n", id="a password in settings"),
        pytest.param("a.yaml", "db:\n  password: hunter2\n", id="a password in YAML"),
        pytest.param("b.yaml", "users:\n  - password: hunter2\n    name: me\n", id="first in a list of YAML"),
        pytest.param("environment", "export DB_PASSWORD=hunter2\n", id="for a shell"),
        pytest.param("r.conf", "port 1\nrequirepass hunter2\n", id="as Redis has it"),
        pytest.param("client.ini", "dsn = postgresql://me:hunter2@db/x\n", id="in an address"),
    ],
)
def test_of_what_may_hold_a_secret_the_name_alone_is_recorded(place: Path, name: str, text: str) -> None:
    """A short secret is guessed by its hash."""
    (place / name).write_text(text)

    found = seen(place)[name]

    assert (found.is_kept, found.sha256, found.why) == (False, None, "it may hold a secret")
    assert not (place / "runs" / "one" / "system" / name).exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("login.py", 'password = os.environ["PASSWORD"]\n', id="a program that asks for one"),
        pytest.param("tokenizer.py", "pass\n", id="another word"),
        pytest.param("a.conf", "password = ${PASSWORD}\n", id="a variable"),
        pytest.param("b.py", 'connect(f"password={word}")\n', id="a placeholder"),
        pytest.param(
            "c.py", 'connect(f"postgresql://{user}:{word}@{host}:{port}/x")\n', id="placeholders in an address"
        ),
        pytest.param("c.yaml", "urls: [http://127.0.0.1:80/a@b, http://{host}:{port}]\n", id="an address without one"),
        pytest.param("d.conf", "# requirepass hunter2\n", id="a line that is none"),
    ],
)
def test_what_only_speaks_of_secrets_is_kept(place: Path, name: str, text: str) -> None:
    (place / name).write_text(text)

    assert seen(place)[name].is_kept


def test_links_hidden_names_runs_and_who_the_hosts_are_are_left_out(place: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("of somebody else")
    (place / "link.txt").symlink_to(tmp_path / "outside")
    (place / ".env").write_text("A=1")
    (place / "hosts.toml").write_text("[[node]]\n")
    for run in ("runs/one", "runs/two", "others/three"):
        (place / run).mkdir(parents=True)
        (place / run / "plan.json").write_text("{}")

    files = seen(place)

    assert list(files) == ["client.py", "system.toml", "z/server", "hosts.toml"]
    assert (files["hosts.toml"].is_kept, files["hosts.toml"].sha256) == (False, None)


def test_what_is_kept_is_bounded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "FILES", 4)
    monkeypatch.setattr(kept_files, "ALL_KEPT_BYTES", 1_000)
    (place / "a.txt").write_text("a" * (64 << 10) + "a")
    (place / "b.txt").write_text("b" * 990)
    (place / "c.txt").write_text("c")

    files, more = kept(place / "system.toml", read_system(place / "system.toml"), place / "runs" / "one")

    assert [one.name for one in files] == ["client.py", "system.toml", "z/server", "a.txt"]
    assert more == 2
    assert (files[3].is_kept, files[3].why) == (False, "larger than 64 KiB")
    monkeypatch.setattr(kept_files, "FILES", 9)
    assert seen(place)["b.txt"].why == "more than 1 MiB with those before it"


HOSTS = '[[node]]\nid = 1\naddress = "192.0.2.1"\nuser = "me"\nkey = "k"\nhost_key = "h"\n'


@pytest.mark.parametrize(
    ("said", "name", "text"),
    [
        pytest.param("./hosts.toml", "hosts.toml", HOSTS, id="named in another way"),
        pytest.param("z/../hosts.toml", "hosts.toml", HOSTS, id="in a roundabout way"),
        pytest.param("hosts.toml", "hosts-of-all.toml", HOSTS, id="of another system beside it"),
        pytest.param("hosts.toml", "nodes.toml", 'nodes = [{ id = 1, address = "192.0.2.1:1" }]\n', id="nodes that run already"),
        pytest.param("hosts.toml", "cluster.toml", 'brokers = [{ id = 1, address = "192.0.2.1:1" }]\n', id="a cluster that does"),
    ],
)  # fmt: skip
def test_of_a_file_that_names_hosts_the_name_alone_is_recorded(place: Path, said: str, name: str, text: str) -> None:
    """Where somebody's nodes are is nobody else's affair, whichever system's they are."""
    (place / "system.toml").write_text(SYSTEM.replace("hosts.toml", said))
    (place / name).write_text(text)

    found = seen(place)[name]

    assert (found.is_kept, found.sha256, found.why) == (False, None, "it names hosts")
    assert not (place / "runs" / "one" / "system" / name).exists()


def test_a_file_of_toml_that_names_no_hosts_is_kept(place: Path) -> None:
    (place / "letters.toml").write_text('address = "no list"\nnodes = [1, 2]\n[[node]]\nname = "a"\n')

    assert seen(place)["letters.toml"].is_kept
