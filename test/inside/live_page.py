"""Finds by the live page alone why a node is slow: the hot spot of the papers' benchmark, some keys that all processes write to.

Drives a browser through the page, wide and narrow, light and dark. Leaves screenshots in _build/live-page.
"""
import base64
import os
import subprocess
import sys
import tempfile
import unittest

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHOTS = os.path.join(ROOT, "_build/live-page")
sys.path.insert(0, os.path.join(ROOT, "docs/site"))
import browser  # noqa: E402

# Quiet tables, two of one name, one that is scanned, and one whose processes write to 8 of its keys half of the time and read them otherwise.
NODE = """
    register(owner_of_tables, self()),
    Make = fun(Name, Options, Size) ->
               cats:new(Name, [named_table, public | Options]),
               cats:insert(Name, [{Key, Key} || Key <- lists:seq(1, Size)])
           end,
    [Make(list_to_atom("quiet_" ++ integer_to_list(N)), [{stats, true}], N * 1000) || N <- lists:seq(1, 12)],
    Make(plain, [bag], 30000),
    [cats:new(twin, [public]) || _ <- [1, 2]],
    Make(hot_spot, [ordered_set, {stats, true}], 20000),
    Quiet = fun Quiet() -> cats:lookup(quiet_3, rand:uniform(6000)), timer:sleep(5), Quiet() end,
    Hot = fun Hot() ->
              [begin cats:insert(hot_spot, {N rem 8, N}), cats:lookup(hot_spot, N rem 8) end || N <- lists:seq(1, 1000)],
              Hot()
          end,
    Scan = fun Scan() -> cats:tab2list(plain), timer:sleep(500), Scan() end,
    [spawn_link(Work) || Work <- [Quiet, Hot, Hot, Hot, Hot, Scan]],
    {ok, _, Url} = cats_web:start(#{}),
    io:format("~s~n", [Url]),
    io:get_line(""),
    halt().
"""


class LivePage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.makedirs(SHOTS, exist_ok=True)
        ebin = os.path.join(ROOT, "_build/default/lib/cats/ebin")
        cls.node = subprocess.Popen([os.environ.get("ERL", "erl"), "-noinput", "-noshell", "-pa", ebin, "-eval", NODE],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cls.url = cls.node.stdout.readline().strip()
        cls.profile = tempfile.TemporaryDirectory()
        cls.browser = browser.start(cls.profile.name)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.profile.cleanup()
        cls.node.kill()
        cls.node.wait()
        cls.node.stdin.close()
        cls.node.stdout.close()

    def setUp(self):
        self.show(1200, "light")
        self.browser.get("about:blank")
        self.browser.get(self.url)
        self.until(lambda: len(self.names()) == 16)

    def show(self, width, scheme):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                     {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 760})
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def until(self, condition):
        WebDriverWait(self.browser, 60).until(lambda _: condition())

    def find(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def names(self):
        return self.script("return [...document.querySelectorAll('#rows a')].map(link => link.textContent)")

    def script(self, text, *arguments):
        return self.browser.execute_script(text, *arguments)

    def press(self, *keys):
        for key in keys:
            self.browser.switch_to.active_element.send_keys(key)

    def title(self):
        """The name of the table in depth. Read in one step, as it is drawn anew."""
        return self.script("return (document.querySelector('#detail h2') || {}).textContent")

    def fact(self, name):
        """The figure of this name in the table in depth."""
        text = self.script("""return [...document.querySelectorAll('#detail dt')].filter(one => one.textContent === arguments[0])
                              .map(one => one.nextSibling.textContent)[0]""", name)
        return text and text.replace(",", "")

    def cell(self, name, title):
        """What the list has of a table in a column. Read in one step, as it is drawn anew."""
        return self.script("""const row = [...document.querySelectorAll('#rows tr')].find(one => one.querySelector('a').textContent === arguments[0]);
                              return row.querySelector(`td[data-title="${arguments[1]}"] span`).textContent""", name, title)

    def test_what_is_busy_comes_first(self):
        self.until(lambda: self.names()[0] == "hot_spot")
        self.assertEqual(self.cell("plain", "Operations/s"), "not counted")
        self.assertRegex(self.find("#uncounted")[0].text, r"^Operations of 3 tables are not counted\..*cats:setopts\(.*, \[\{stats, true\}\]\)\.$")
        # Scans are seen all the same.
        self.until(lambda: self.cell("plain", "Slices/s") not in ("0", "–"))
        self.assertEqual(self.cell("quiet_1", "Slices/s"), "0")
        # They give it its place, as its operations are not known.
        self.until(lambda: self.names().index("plain") < self.names().index("quiet_1"))
        # A choice stays.
        self.sort("Memory")
        self.until(lambda: self.names()[0] == "plain")
        before = self.script("return past.get(rows[0].id).stats.time")
        self.until(lambda: self.script("return past.get(rows[0].id).stats.time") != before)
        self.assertEqual(self.names()[0], "plain")

    def test_tables_of_one_name_are_told_apart(self):
        texts = self.script("return [...document.querySelectorAll('#rows tr')].map(row => row.firstChild.textContent).filter(text => text.startsWith('twin'))")
        self.assertEqual(len(set(texts)), 2)
        self.assertRegex(texts[0], r"#Ref<[0-9.]+>$")
        self.script("[...document.querySelectorAll('#rows a')].find(one => one.textContent === 'twin').click()")
        self.until(lambda: (self.title() or "").startswith("twin #Ref<"))
        # No row for what it does not have.
        self.assertIsNone(self.fact("heir"))
        self.assertIsNone(self.fact("compressed"))
        self.assertIsNone(self.fact("evicted/s"))
        self.assertNotIn("–", self.script("return [...document.querySelectorAll('#detail dd')].map(one => one.textContent)"))
        self.assertRegex(self.script("return document.querySelector('#detail').textContent"),
                         r'cats:setopts\(list_to_ref\("#Ref<[0-9.]+>"\), \[\{stats, true\}\]\)\.')

    def test_hot_spot_is_found_by_clicks(self):
        self.sort("Waits/s")
        self.until(lambda: self.names()[0] == "hot_spot")
        row = self.browser.find_element(By.XPATH, "//tbody//tr[.//a = 'hot_spot']")
        self.assertRegex(row.text, "ordered_set, ca, owner owner_of_tables")
        row.find_element(By.CSS_SELECTOR, "td:nth-child(2)").click()
        self.until(lambda: self.title() == "hot_spot")
        self.until(lambda: int(self.fact("waits for locks")) > 0)
        # Why: as many writes as reads, and processes that wait for each other.
        self.assertRegex(self.fact("inserts"), r"\d")
        self.assertEqual(self.fact("name"), "owner_of_tables")
        self.assertGreaterEqual(int(self.fact("base nodes")), 1)
        self.screenshots("hot-spot")
        self.find("#detail button")[0].click()
        self.until(lambda: not self.find("#detail")[0].is_displayed())

    def sort(self, title):
        """Clicks a head until the list is sorted by it, the greatest first."""
        head = f"//thead//button[text()='{title}']"
        self.browser.find_element(By.XPATH, head).click()
        self.assertEqual(self.browser.find_element(By.XPATH, head + "/..").get_attribute("aria-sort"), "descending")

    def test_sorting_and_filter(self):
        for title, first in [("Memory", "plain"), ("Objects", "plain"), ("Operations/s", "hot_spot"), ("Table", None)]:
            button = self.browser.find_element(By.XPATH, f"//thead//button[text()='{title}']")
            if button.find_element(By.XPATH, "..").get_attribute("aria-sort") != "descending":
                button.click()
            if first:
                self.until(lambda: self.names()[0] == first)
        self.assertEqual(self.names(), sorted(self.names()))
        self.press("/")
        self.press("q", "u", "i", "e", "t", "_", "1")
        self.until(lambda: self.names() == ["quiet_1", "quiet_10", "quiet_11", "quiet_12"])
        self.script("document.getElementById('filter').value = ''")
        self.press("bag")
        self.until(lambda: self.names() == ["plain"])

    def test_keys_suffice(self):
        self.press("/", *"hot")
        self.until(lambda: self.names() == ["hot_spot"])
        self.press(Keys.ESCAPE)
        for _ in range(12):
            self.press(Keys.TAB)
            if self.browser.switch_to.active_element.text == "hot_spot":
                break
        self.press(Keys.ENTER)
        self.until(lambda: self.title() == "hot_spot")
        # The focus stays when all is drawn anew.
        self.assert_focus_stays("hot_spot")
        self.script("document.querySelector('#detail button').focus()")
        self.assert_focus_stays("Close")
        self.press("p")
        self.until(lambda: self.find("#pause")[0].get_attribute("aria-pressed") == "true")
        self.press("p", Keys.ESCAPE)
        self.until(lambda: not self.find("#detail")[0].is_displayed())

    def assert_focus_stays(self, text):
        before = self.fact("waited in all")
        self.until(lambda: self.fact("waited in all") != before)
        self.assertEqual(self.browser.switch_to.active_element.text, text)

    def test_each_width_and_colour(self):
        self.until(lambda: "–" not in self.script("return document.querySelector('#rows td:nth-child(5)').textContent"))
        self.screenshots("tables")
        self.assertEqual([entry for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"], [])

    def screenshots(self, name):
        """The whole page in each width and colour. Nothing is cut off, and all texts can be told from what is behind them."""
        colours = set()
        for width in [1200, 400]:
            for scheme in ["light", "dark"]:
                self.show(width, scheme)
                self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), width)
                self.assertEqual(self.script(CUT_OFF), [], (name, width))
                self.assertEqual(self.script(FAINT), [], (name, scheme))
                colours.add(self.script("return getComputedStyle(document.body).backgroundColor"))
                shot = self.browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
                with open(os.path.join(SHOTS, f"{name}-{width}-{scheme}.png"), "wb") as file:
                    file.write(base64.b64decode(shot["data"]))
        self.assertEqual(len(colours), 2)
        self.show(1200, "light")


# Texts that are wider than their places.
CUT_OFF = """
return [...document.querySelectorAll('td, dd, dt, button, h1, h2, h3, p')]
  .filter(one => one.offsetParent && one.scrollWidth > one.clientWidth + 1).map(one => one.textContent);
"""
# Texts with a contrast below 4.5, as WCAG 2.1 computes it.
FAINT = """
const context = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const parts = colour => {
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data];
};
const light = colour => parts(colour).slice(0, 3).map(part => part / 255)
  .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
const behind = one => {
  const colour = getComputedStyle(one).backgroundColor;
  return parts(colour)[3] === 255 || !one.parentElement ? colour : behind(one.parentElement);
};
return [...document.querySelectorAll('body *')]
  .filter(one => one.offsetParent && [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()))
  .map(one => [one.textContent, light(getComputedStyle(one).color), light(behind(one))])
  .filter(([, a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5).map(([text]) => text);
"""


if __name__ == "__main__":
    unittest.main()
