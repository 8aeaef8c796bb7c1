"""Make the evidence archives of published pages anew from the recordings that they hold, and put their new hashes into the pages.

    python tools/renew_evidence.py docs/published/lowered-min-isr

`tribunal verify` makes verdict and report anew and compares every byte. So an archive that was made before the report got another
word is accepted with exit code 0 no more, though its recording and its verdict are what they were. This makes verdict and report again
and leaves the recording, the plan and the name of the commit that recorded them. It refuses where the verdict would be another: then
the run is to be looked at, or recorded again. Archives of the first version stay: what they say for readers is not compared.
"""

import argparse
from pathlib import Path

from tribunal.checkers.judge.verdict import check
from tribunal.harness.evidence.bundle import VERSION, bundle, sha256_of, unpacked
from tribunal.harness.evidence.verify import verified
from tribunal.results.scratch import Scratch


def renewed(archive: Path) -> bool:
    """Make an archive anew in its place; return whether it had to be."""
    before = verified(archive, "inline")
    if before.is_same:
        return False
    if before.found is not before.stated:
        raise SystemExit(f"{archive}: {before.stated} stated, {before.found} found: this is no matter of words")
    with Scratch("renew") as folder:
        content = unpacked(archive, folder / "stated")
        if content.bundle_version < VERSION:
            return False
        run_dir = (folder / "stated").rename(folder / content.run_id)
        check([run_dir], "inline")
        again = folder / archive.name
        bundle(run_dir, again)
        after = verified(again, "inline")
        if not after.is_same:
            raise SystemExit(f"{archive}: {'; '.join(after.differences)}")
        old, new = sha256_of(archive), sha256_of(again)
        archive.write_bytes(again.read_bytes())
    site = archive.parents[1]
    for page in (site / "index.html", site.with_suffix(".md")):
        if page.is_file():
            page.write_text(page.read_text().replace(old, new))
    return True


def main() -> None:
    """Make the archives of the named sites anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sites", nargs="+", type=Path, help="folders with an index.html and evidence/")
    for site in parser.parse_args().sites:
        for archive in sorted((site / "evidence").glob("*.zip")):
            print(f"{'made anew' if renewed(archive) else 'as it was':<10} {archive}")


if __name__ == "__main__":
    main()
