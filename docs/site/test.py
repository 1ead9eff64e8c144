"""Checks the documents: links from the root folder, and the built site in a browser without a network."""
import functools
import http.server
import os
import re
import tempfile
import threading
import unittest
import urllib.parse

from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import browser

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SITE = os.path.join(ROOT, "_build/site")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# What users ask, and the page that answers.
QUESTIONS = {"expire objects": "guide/caches.html",
             "memory limit": "guide/caches.html",
             "nested transaction": "guide/transactions.html",
             "release": "guide/installing.html",
             "counters": "guide/beyond-ets.html",
             "move from cachex": "guide/coming-from-caches.html",
             "leaderboard": "guide/order-statistics.html",
             "survive a crash": "guide/beyond-ets.html",
             "which table is hot": "guide/seeing-inside.html",
             "no rust": "guide/installing.html"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Links(unittest.TestCase):
    """The site generator checks the links within docs/."""

    def test_links_of_root_documents(self):
        names = [name for name in os.listdir(ROOT) if name.endswith(".md")]
        self.assertIn("README.md", names)
        links = [(name, link) for name in names for link in LINK.findall(read(os.path.join(ROOT, name)))]
        broken = [(name, link) for name, link in links if "://" not in link and not self.is_there(name, link)]
        self.assertEqual(broken, [])

    def is_there(self, name, link):
        path, _, heading = link.partition("#")
        file = os.path.join(ROOT, path or name)
        return os.path.exists(file) and (not heading or heading in anchors(read(file)))


def anchors(markdown):
    """The anchors of the headings, as code hosts and the site generator make them."""
    headings = re.findall(r"^#+ (.*)$", markdown, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        handler = functools.partial(QuietHandler, directory=SITE)
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.profile = tempfile.TemporaryDirectory()
        cls.browser = browser.start(cls.profile.name, "--window-size=1200,900")

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.profile.cleanup()
        cls.server.shutdown()
        cls.server.server_close()

    def test_search_from_the_disk(self):
        self.look_up(f"file://{SITE}/")

    def test_search_from_a_server(self):
        self.look_up(f"http://127.0.0.1:{self.server.server_port}/")

    def look_up(self, base):
        """Searches for a function, follows the first result, and reads its specification there."""
        self.browser.get(base + "index.html")
        field = self.browser.find_element(By.CSS_SELECTOR, ".md-search__input")
        field.click()
        field.send_keys("lookup_elements")
        result = WebDriverWait(self.browser, 20).until(self.first_result)
        self.browser.get(result)
        self.assertRegex(result, re.escape(base) + r"reference/cats\.html\?h=lookup_elements#lookup_elements-3$")
        heading = self.browser.find_element(By.ID, "lookup_elements-3")
        self.assertIn("lookup_elements/3", heading.text)
        self.assertIn("-spec lookup_elements(", self.browser.find_element(By.CSS_SELECTOR, "#lookup_elements-3 + div").text)
        self.assert_loaded_only_from(base)

    def test_search_answers_questions(self):
        self.assertEqual({question: self.first_page(question) for question in QUESTIONS}, QUESTIONS)

    def first_page(self, question):
        """The page of the first result."""
        base = f"http://127.0.0.1:{self.server.server_port}/"
        self.browser.get(f"{base}index.html?q={urllib.parse.quote(question)}")
        self.browser.find_element(By.CSS_SELECTOR, ".md-search__input").click()
        link = WebDriverWait(self.browser, 20).until(lambda browser: browser.find_element(By.CSS_SELECTOR, ".md-search-result__link"))
        return re.sub(r"[?#].*", "", link.get_attribute("href").removeprefix(base))

    @staticmethod
    def first_result(browser):
        """The address of the first result that is a section of a page."""
        links = browser.find_elements(By.CSS_SELECTOR, ".md-search-result__link[href*='#']")
        return links[0].get_attribute("href") if links else None

    def assert_loaded_only_from(self, base):
        loaded = self.browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
        self.assertEqual([name for name in loaded if not name.startswith((base, "data:", "blob:"))], [])

    def test_internal_modules_have_no_page(self):
        self.assertEqual(sorted(name for name in os.listdir(os.path.join(SITE, "reference")) if name.endswith(".html")),
                         ["cats.html", "cats_advise.html", "cats_mnesia.html", "cats_observer.html", "cats_recompile.html",
                          "cats_telemetry.html", "cats_top.html", "cats_trace.html", "cats_transaction.html", "cats_transform.html",
                          "cats_web.html",
                          "index.html"])


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


if __name__ == "__main__":
    unittest.main()
