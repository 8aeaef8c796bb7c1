"""What is cited can be looked up in this repository: sections, rules, invariants, known bugs, decisions, files and names in files.

A citation is `SPEC 3.5.2` (section, numbered paragraph) or `SPEC 2.7, row 11`, `I9`, `Z1`, `R4`, `M10`, `D7`, `decision 0006`,
`docs/known-bugs.md, point 3`, and a path from the root, with a name behind a colon where one is meant. What there is to cite is
read off the tree: headings, paragraphs and rows of the pages in `LAW`, and the files. In Python files numbers are looked for everywhere, since
findings cite them too, and so do pages of `docs`; other paths in comments and docstrings.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from itertools import product
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = "docs/spec.md"
# kind of number -> the page that defines it, and what a definition looks like there
LAW: Mapping[str, tuple[str, str]] = {
    "D": (SPEC, r"^\| (D\d+) \|"),
    "I": ("docs/invariants.md", r"^### (I\d+)$"),
    "Z": ("docs/invariants.md", r"^### (Z\d+)$"),
    "R": ("docs/verdicts.md", r"^\| (R\d+) \|"),
    "M": ("docs/known-bugs.md", r"^### (M\d+)$"),
}
POINTS = "docs/known-bugs.md"
READ = {".py", ".md", ".yaml", ".yml"}
FILES = {".py", ".md", ".yaml", ".yml", ".toml"}  # a word with a slash that ends so names a file
OF_USERS = {"tribunal_plugins", "runs"}  # folders in the working directory of whoever uses this project

GAP = r"[\s#]+"  # a citation may go on in the next line of a comment
SECTION = r"\d+(?:\.\d+)*[a-z]?(?:-\d+)?"
CITED_SPEC = re.compile(
    rf"\bSPEC(?:{GAP}section)?{GAP}({SECTION}(?:(?:,|{GAP}and|{GAP}to){GAP}\d+\.[\d.]*\d(?:-\d+)?)*)(?:,{GAP}rows?{GAP}([\d, -]*\d))?"
)
CITED_NUMBER = re.compile(r"(?<![\w/])(?<![A-Za-z]-)(?:[IZRD]\d{1,2}|M\d{2})\b")  # not the end of A-Z0-9
CITED_DECISION = re.compile(r"\bdecisions?[ /[(]+(\d{4})\b")
CITED_POINT = re.compile(rf"\bknown-bugs\.md,{GAP}points?{GAP}(\d+)\b")
PATH = re.compile(
    r"(?<![\w/.@:~$-])(?:\.\./)*([\w.<{*-][\w.{},<>*-]*(?:/[\w.{},<>*-]+)*)(?:(#[\w-]+)|::?([A-Za-z_][\w.:]*))?"
)
PAGE = re.compile(r"[\w-]+\.py|[A-Z_]+\.md")
TITLE = re.compile(r"^```\w+ title=\"([^\"]+)\"", re.MULTILINE)


class Tree:
    """The files of a repository, and what can be cited of them."""

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self.root = root
        self.files = frozenset(files)
        parents = [parent.as_posix() for file in files for parent in PurePosixPath(file).parents]
        self.folders = frozenset(parents) - {"."}
        self.basenames = frozenset(PurePosixPath(file).name for file in files)
        self.top = frozenset(file.partition("/")[0] for file in files if "/" in file)
        self.numbers = frozenset(
            number for page, pattern in LAW.values() for number in re.findall(pattern, self.text(page), re.MULTILINE)
        )
        self.decisions = frozenset(re.findall(r"^docs/decisions/(\d{4})-", "\n".join(files), re.MULTILINE))
        self.points = frozenset(re.findall(r"^(\d+)\. ", self.text(POINTS), re.MULTILINE))
        self.sections, self.rows = self._sections()

    def text(self, path: str) -> str:
        """Return a file's text; nothing where there is no such file."""
        return (self.root / path).read_text() if path in self.files else ""

    def _sections(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return sections with their numbered paragraphs (`3.5`, `3.5.2`), and the numbered rows of their tables (`2.7 row 11`)."""
        sections, rows = [], []
        section = ""
        for line in self.text(SPEC).splitlines():
            if heading := re.match(r"#{2,3} (\d+(?:\.\d+)?)\.? ", line):
                section = heading[1]
                sections.append(section)
            elif paragraph := re.match(r"(\d+[a-z]?)\. ", line):
                sections.append(f"{section}.{paragraph[1]}")
            elif row := re.match(r"\| (\d+) \|", line):
                rows.append(f"{section} row {row[1]}")
        return frozenset(sections), frozenset(rows)

    def anchors(self, path: str) -> frozenset[str]:
        """Return what a link into a page can name: its headings, as GitHub and MkDocs write them."""
        headings = re.findall(r"^#+ (.*)$", self.text(path), re.MULTILINE)
        plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
        return frozenset(re.sub(r"\s+", "-", heading) for heading in plain)

    def problems(self) -> list[str]:
        """Return a line for each citation that leads nowhere."""
        return sorted(
            f"{file}:{line}: {what}"
            for file in self.files
            if PurePosixPath(file).suffix in READ
            for line, what in sorted({*self._numbers(file), *self._paths(file)})
        )

    def _numbers(self, file: str) -> Iterator[tuple[int, str]]:
        text = self.text(file)
        for match in CITED_SPEC.finditer(text):
            cited = [one for part in re.split(rf",|{GAP}and|{GAP}to", match[1]) for one in spread(part.strip(" \n#"))]
            section = cited[-1]
            rows = [
                f"{section} row {number}" for part in (match[2] or "").split(",") for number in spread(part.strip())
            ]
            for one in (*cited, *rows):
                if one and one not in self.sections | self.rows and not one.endswith(" row "):
                    yield line_of(text, match), f"SPEC {one}"
        for pattern, known, what in (
            (CITED_NUMBER, self.numbers, "{}"),
            (CITED_DECISION, self.decisions, "decision {}"),
            (CITED_POINT, self.points, "docs/known-bugs.md, point {}"),
        ):
            for match in pattern.finditer(text):
                cited_number = match[match.lastindex or 0]
                if cited_number not in known:
                    yield line_of(text, match), what.format(cited_number)

    def _paths(self, file: str) -> Iterator[tuple[int, str]]:
        text = self.text(file)
        lost = list(self._lost_paths(file, text))
        yield from (one for one in lost if one[1].startswith("docs/"))  # findings that users read name pages, too
        if lost:  # rarely: to tell comments and docstrings from code takes long
            for start, part in prose(file, text):
                yield from ((start + line - 1, what) for line, what in self._lost_paths(file, part))

    def _lost_paths(self, file: str, text: str) -> Iterator[tuple[int, str]]:
        own = frozenset(
            PurePosixPath(title).name for title in TITLE.findall(text)
        )  # what a document lets its reader write
        for match in PATH.finditer(text):
            path = match[1].rstrip(".,-")
            if "<" in match[0] or path in own or not self._names_a_file(path):
                continue
            line = line_of(text, match)
            found = [one for each in braces(path) for one in self._found(file, each) or [""]]
            if "" in found:
                yield line, path
            elif match[2] and match[2].removeprefix("#") not in self.anchors(found[0]):
                yield line, f"{path}{match[2]}"
            elif match[3] and path.endswith(".py"):
                name = match[3].replace("::", ".").rstrip(".:")
                if name not in names_in(self.text(found[0])):
                    yield line, f"{path}:{name}"

    def _names_a_file(self, path: str) -> bool:
        top, slash, _ = path.partition("/")
        if not slash:
            return bool(PAGE.fullmatch(path))
        return top in self.top or (PurePosixPath(path).suffix in FILES and top not in OF_USERS)

    def _found(self, file: str, path: str) -> list[str]:
        """Return the files that a path means: from the root, or from where it is written; a bare name lies anywhere."""
        path = path.rstrip("/")
        beside = (PurePosixPath(file).parent / path).as_posix()
        for each in (path, beside):
            if "*" in each:
                return [one for one in (*self.files, *self.folders) if fnmatch(one, each)]
            if each in self.files or each in self.folders:
                return [each]
        return [name for name in self.files if "/" not in path and PurePosixPath(name).name == path][:1]


@cache
def names_in(source: str) -> frozenset[str]:
    """Return top-level names of a Python source, and those of its classes with a dot."""
    found: list[str] = []

    def collect(body: Sequence[ast.stmt], prefix: str) -> None:
        for node in body:
            match node:
                case ast.ClassDef():
                    found.append(prefix + node.name)
                    collect(node.body, f"{prefix}{node.name}.")
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    found.append(prefix + node.name)
                case ast.Assign(targets=targets):
                    found.extend(prefix + target.id for target in targets if isinstance(target, ast.Name))
                case ast.AnnAssign(target=ast.Name(id=name)):
                    found.append(prefix + name)

    collect(ast.parse(source).body, "")
    return frozenset(found)


def prose(file: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield what people read of a file, each with its first line: all of a document, comments, docstrings."""
    if file.endswith(".md"):
        yield 1, text
        return
    if not file.endswith(".py"):
        yield from ((number, line.partition("#")[2]) for number, line in enumerate(text.splitlines(), 1))
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.lineno, first.value.value


def spread(cited: str) -> list[str]:
    """Return what a range means: `2.3.4-6` is 2.3.4, 2.3.5 and 2.3.6."""
    first, dash, last = cited.partition("-")
    if not dash:
        return [cited]
    head, dot, number = first.rpartition(".")
    return [f"{head}{dot}{one}" for one in range(int(number), int(last) + 1)]


def braces(path: str) -> list[str]:
    """Return what a path with choices in braces means."""
    parts = re.split(r"\{([^}]*)\}", path)
    choices = [part.split(",") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]


def line_of(text: str, match: re.Match[str]) -> int:
    """Return the line that a match begins in."""
    return text.count("\n", 0, match.start()) + 1


def this_repository() -> Tree:
    """Return what is committed, and what is about to be."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return Tree(ROOT, [file for file in files if (ROOT / file).is_file()])


def test_every_citation_leads_somewhere() -> None:
    assert this_repository().problems() == []


PAGES = {
    SPEC: "### 0.1 Decisions\n| D1 | a |\n### 2.7 AlterPartition\n| # | test |\n| 10 | epoch |\n1. first\n2. second\n6. sixth\n### 3.12 ZooKeeper\n6. six\n",
    "docs/invariants.md": "### I9\nHolds.\n### Z1\nHolds too.\n",
    "docs/verdicts.md": "| R4 | permitted |\n",
    "docs/known-bugs.md": "### M10\nWrong.\n\n3. a point\n",
    "docs/decisions/0006-after-a-failed-fsync.md": "# A choice\n",
    "room/isr.py": "LIMIT: int = 3\n\n\nclass Leader:\n    def shrink(self):\n        pass\n",
}


def made_up(root: Path, file: str, text: str) -> Tree:
    """A repository of a few pages, with a file that cites."""
    for name, content in {**PAGES, file: text}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return Tree(root, [*PAGES, file])


@pytest.mark.parametrize(
    ("kind", "good", "bad", "said"),
    [
        pytest.param("SPEC ", "2.7", "2.8", "SPEC 2.8", id="section"),
        pytest.param("SPEC ", "2.7.6", "2.7.7", "SPEC 2.7.7", id="paragraph"),
        pytest.param("SPEC ", "3.12.6", "3.12.6a", "SPEC 3.12.6a", id="paragraph in between"),
        pytest.param("SPEC 2.7, ", "2.7.1", "3.1.1", "SPEC 3.1.1", id="second of a list"),
        pytest.param("SPEC 2.7.1,\n# ", "2.7.2", "2.9.2", "SPEC 2.9.2", id="list in two lines"),
        pytest.param("SPEC 2.7.1", "-2", "-3", "SPEC 2.7.3", id="range"),
        pytest.param("SPEC 2.7, ", "row 10", "row 11", "SPEC 2.7 row 11", id="row"),
        pytest.param("D", "1", "2", "D2", id="decision of the specification"),
        pytest.param("I", "9", "8", "I8", id="invariant"),
        pytest.param("Z", "1", "2", "Z2", id="invariant of ZooKeeper mode"),
        pytest.param("R", "4", "3", "R3", id="rule"),
        pytest.param("M", "10", "12", "M12", id="known bug"),
        pytest.param("decision ", "0006", "0005", "decision 0005", id="decision"),
        pytest.param("docs/known-bugs.md, point ", "3", "4", "docs/known-bugs.md, point 4", id="point"),
        pytest.param("docs/", "spec.md", "power.md", "docs/power.md", id="page"),
        pytest.param("docs/invariants.md", "#i9", "#i8", "docs/invariants.md#i8", id="place in a page"),
        pytest.param("room/", "isr.py", "elr.py", "room/elr.py", id="file"),
        pytest.param("room/", "{isr}.py", "{isr,elr}.py", "room/{isr,elr}.py", id="files"),
        pytest.param("room/", "i*.py", "e*.py", "room/e*.py", id="pattern"),
        pytest.param("room/isr.py:", "Leader.shrink", "Leader.grow", "room/isr.py:Leader.grow", id="name in a file"),
        pytest.param("other/", "<name>.py", "isr.py", "other/isr.py", id="folder"),
        pytest.param("`", "isr.py", "elr.py", "elr.py", id="file without its folder"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("file", ["README.md", "room/cites.py"])
def test_a_citation_is_distinguished_from_its_bad_neighbour(
    tmp_path: Path, file: str, kind: str, good: str, bad: str, said: str
) -> None:
    fine = made_up(tmp_path / "fine", file, f"# See {kind}{good}, and so on.\n").problems()
    lost = made_up(tmp_path / "lost", file, f"# See {kind}{bad}, and so on.\n").problems()

    assert fine == []
    assert [problem.partition(": ")[2] for problem in lost] == [said]


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        pytest.param('"""See {}."""\n', True, id="docstring of a module"),
        pytest.param('def f():\n    """See {}."""\n', True, id="docstring of a function"),
        pytest.param("NUMBER = 3  # see {}\n", True, id="comment"),
        pytest.param("PATH = '{}'\n", False, id="what code works with"),
        pytest.param("RULE = 'docs/invariants.md#i8'\n", True, id="page in what code says"),
    ],
)
def test_paths_in_python_are_those_that_people_read(tmp_path: Path, text: str, is_read: bool) -> None:
    tree = made_up(tmp_path, "room/cites.py", text.format("room/" + "elr.py"))

    assert bool(tree.problems()) is is_read


def test_a_document_may_name_files_that_its_reader_is_to_write(tmp_path: Path) -> None:
    own = '```python title="test_mine.py"\n```\nCall pytest test_mine.py, or keep it in tribunal_plugins/nemesis/jam.py.\n'

    assert made_up(tmp_path, "docs/tutorial.md", own).problems() == []
