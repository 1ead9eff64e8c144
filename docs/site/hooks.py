"""What mkdocs.yml cannot say: adds pages that do not lie in docs/, and orders the navigation.

- The reference comes from the documentation chunks of the compiled modules.
- Some documents of the root folder become pages too. Their links, and links to them, are rewritten.
- Within a folder, pages follow the order of the links in its index.md. Other pages come after them. The root documents
  stand together.
- An example in Erlang and the same in Elixir right behind it stand in tabs.
- The search prefers pages of the guide, for they answer what users ask.
"""
import os
import posixpath
import re
import subprocess

from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DOCS = os.path.join(ROOT, "docs")
EBIN = os.path.join(ROOT, "_build/default/lib/cats/ebin")
REFERENCE = os.path.join(ROOT, "_build/reference")
ROOT_DOCUMENTS = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
TITLES = {"index.md": "Home", "papers.md": "Papers"}
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
BOTH = re.compile(r"^(```erlang\n(?:(?!```).*\n)*```)\n\n(```elixir\n(?:(?!```).*\n)*```)$", re.MULTILINE)


def on_files(files, config):
    reference = os.path.join(ROOT, "docs/site/reference")
    subprocess.run(["escript", reference, EBIN, REFERENCE], check=True)
    for name in sorted(os.listdir(REFERENCE)):
        files.append(File.generated(config, f"reference/{name}", content=read(os.path.join(REFERENCE, name))))
    for name in ROOT_DOCUMENTS + ["LICENSE"]:
        if os.path.exists(os.path.join(ROOT, name)):
            files.append(File.generated(config, name, content=read(os.path.join(ROOT, name))))
    pages = {file.src_uri: file.content_string for file in files.documentation_pages() if file.src_uri not in ROOT_DOCUMENTS}
    config.nav = navigation("", pages) + [{"Project": [name for name in ROOT_DOCUMENTS if files.get_file_from_path(name)]}]
    return files


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri.startswith("guide/"):
        page.meta["search"] = {"boost": 4}
    if page.file.src_uri == "index.md":
        readme = read(os.path.join(ROOT, "README.md")).partition("## Install")[0].strip()
        return relink(markdown, DOCS, "").replace("{{ readme }}", relink(readme, ROOT, ""))
    if page.file.src_uri in ROOT_DOCUMENTS:
        return relink(markdown, ROOT, "")
    folder = posixpath.dirname(page.file.src_uri)
    return tabs(relink(markdown, os.path.join(DOCS, folder), folder))


def tabs(markdown):
    def tab(language, example):
        return f'=== "{language}"\n\n' + "\n".join(f"    {line}".rstrip() for line in example.split("\n"))

    return BOTH.sub(lambda match: tab("Erlang", match[1]) + "\n\n" + tab("Elixir", match[2]), markdown)


def relink(markdown, directory, folder):
    """Markdown from a directory on the disk, with links that hold in a folder of the site."""
    def target(link):
        path = os.path.normpath(os.path.join(directory, link))
        if os.path.dirname(path) == ROOT and os.path.basename(path) in ROOT_DOCUMENTS + ["LICENSE"]:
            return os.path.basename(path)
        if path.startswith(DOCS + os.sep):
            return os.path.relpath(path, DOCS)
        return None

    def rewritten(match):
        found = None if ":" in match[2] else target(match[2])
        return match[0] if found is None else match[1] + posixpath.relpath(found, folder or ".") + match[3]

    return LINK.sub(rewritten, markdown)


def navigation(folder, pages):
    """The pages of a folder and of the folders in it, in the order of the links in its index.md."""
    index = posixpath.join(folder, "index.md")
    linked = [posixpath.normpath(posixpath.join(folder, match[2])) for match in LINK.finditer(pages.get(index, ""))]
    entries = {}
    for page in [index] + linked + sorted(pages):
        if page in pages and posixpath.dirname(page) == folder:
            entries[page] = {TITLES[page]: page} if page in TITLES else page
        elif page in pages and page.startswith(folder):
            inner = posixpath.join(folder, posixpath.relpath(page, folder or ".").split("/")[0])
            entries[inner] = {posixpath.basename(inner).capitalize(): navigation(inner, pages)}
    return list(entries.values())


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()
