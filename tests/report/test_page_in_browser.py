"""Pages in a real browser: they render, sort, filter and print, wide and narrow, and the console stays empty."""

import base64
import shutil

import pandas as pd
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.report.again import time_again
from kernbench.report.page.render import write_page
from kernbench.report.page.run_page import run_page
from kernbench.report.page.sweep_page import sweep_page
from kernbench.run import run_bench
from kernbench.specs.attention import DecodeSpec
from tests.report.sweeps import frame

N_POINTS = 10_000


def program(*names):
    """Return the path of a program that these tests need: they are never skipped."""
    found = next((path for path in map(shutil.which, names) if path), None)
    assert found, f"{names[0]} is not installed; on Debian: apt-get install chromium chromium-driver"
    return found


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium", "chromium-browser", "google-chrome")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(program("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    """Addresses of the pages, by name."""
    bench, machine = find_bench("gqa_decode_long"), kb.load_machine("row4_pe8")
    run = run_bench(bench, machine, DecodeSpec(S_kv=200, TILE_S_KV=16))
    values = run_bench(bench, machine, DecodeSpec(S_kv=200), mode="values")
    grid = run_bench(find_bench("decode_splitkv"), kb.load_machine("h200"), mode="time")
    again = time_again(run)
    texts = {
        "run": run_page(run, again),
        "values": run_page(values, None),
        "grid": run_page(grid, None),
        "sweep": sweep_page(frame(N_POINTS), name="tiles", command="kernbench sweep", winner=run, again=again),
    }
    folder = tmp_path_factory.mktemp("pages")
    return {name: write_page(text, folder / name).as_uri() for name, text in texts.items()}


PAGES = ["run", "values", "grid", "sweep"]


def set_width(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.fixture
def opened(browser, addresses):
    """Open a page by name; at the end the console must be empty."""

    def open_page(name, width=1200):
        set_width(browser, width)
        browser.get(addresses[name])
        return browser

    browser.get_log("browser")
    yield open_page
    assert browser.get_log("browser") == []


def points_of(browser):
    """Return the element of the page's first table of points."""
    return browser.find_element(By.CSS_SELECTOR, ".points")


def column(browser, name):
    """Return the cells of a column of points, from above, as they are shown."""
    names = [button.text.split()[0] for button in points_of(browser).find_elements(By.CSS_SELECTOR, "th button")]
    script = "return [...arguments[0].querySelectorAll(arguments[1])].map(c => c.textContent)"
    return browser.execute_script(script, points_of(browser), f"tbody td:nth-child({names.index(name) + 1})")


def heading(browser, name):
    found = points_of(browser).find_elements(By.TAG_NAME, "th")
    return next(one for one in found if one.text.split()[0] == name)


def sort_by(browser, name):
    heading(browser, name).find_element(By.TAG_NAME, "button").click()


def type_filter(browser, text):
    box = points_of(browser).find_element(By.CLASS_NAME, "filter")
    box.clear()
    box.send_keys(text, Keys.TAB)


def status(browser):
    return points_of(browser).find_element(By.CLASS_NAME, "status").text


def numbers(cells):
    return [float(cell.replace(",", "")) for cell in cells if cell != "–"]


# ---------------------------------------------------------------- rendering
@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("name", PAGES)
def test_it_renders_and_fits_the_screen(opened, name, width):
    browser = opened(name, width)
    sections = browser.find_elements(By.TAG_NAME, "section")
    assert len(sections) >= 6
    assert all(section.is_displayed() and section.text.strip() for section in sections)
    pictures = browser.find_elements(By.CSS_SELECTOR, "figure svg")
    assert pictures
    assert all(picture.size["width"] > 200 and picture.size["height"] > 50 for picture in pictures)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != "rgba(0, 0, 0, 0)"


def test_the_line_that_takes_most_is_shaded_most(opened):
    browser = opened("run")
    shades = browser.execute_script(
        "return [...document.querySelectorAll('.listing .hot')].map(row => ["
        "Number(row.querySelector('data').value), getComputedStyle(row.querySelector('.code')).backgroundColor])"
    )
    shares = [share for share, _ in shades]
    alphas = [float(colour.rpartition(",")[2].strip(" )")) for _, colour in shades]
    assert len(shades) > 3
    assert alphas.index(max(alphas)) == shares.index(max(shares))
    plain = browser.find_elements(By.CSS_SELECTOR, ".listing tr:not(.hot) .code")
    assert plain[0].value_of_css_property("background-color") == "rgba(0, 0, 0, 0)"


def test_the_copy_button_says_what_came_of_it(opened):
    browser = opened("run")
    button = browser.find_element(By.CSS_SELECTOR, ".copy")
    button.click()
    WebDriverWait(browser, 5).until(lambda _: button.text in ("Copied", "Selected"))


# ---------------------------------------------------------------- sorting
@pytest.mark.parametrize(("name", "of"), [("run", "takes_ps"), ("sweep", "makespan_ps"), ("sweep", "TILE_S_KV")])
def test_a_heading_sorts_by_size_up_and_down(opened, name, of):
    browser = opened(name)
    before = numbers(column(browser, of))
    assert before != sorted(before)
    for direction, reverse in (("ascending", False), ("descending", True)):
        sort_by(browser, of)
        assert heading(browser, of).get_attribute("aria-sort") == direction
        shown = numbers(column(browser, of))
        assert shown == sorted(shown, reverse=reverse)
        assert shown != before


def test_sorting_takes_all_points_in_not_only_those_shown(opened):
    browser = opened("sweep")
    times = sorted(int(ps) for ps in frame(N_POINTS).makespan_ps.dropna())
    sort_by(browser, "makespan_ps")
    assert numbers(column(browser, "makespan_ps")) == times[:200]
    sort_by(browser, "makespan_ps")  # points that have none stay behind, whichever way
    assert numbers(column(browser, "makespan_ps")) == times[::-1][:200]


def test_sorting_keeps_the_order_of_equals(opened):
    browser = opened("sweep")
    sort_by(browser, "makespan_ps")
    sort_by(browser, "TILE_S_KV")
    points = frame(N_POINTS).sort_values("makespan_ps", kind="stable").sort_values("TILE_S_KV", kind="stable")
    assert column(browser, "key") == points.key[:200].tolist()


def test_sorting_works_from_the_keyboard(opened):
    browser = opened("sweep")
    heading(browser, "cost").find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert heading(browser, "cost").get_attribute("aria-sort") == "ascending"
    assert len(points_of(browser).find_elements(By.CSS_SELECTOR, "th[aria-sort=ascending]")) == 1


# ---------------------------------------------------------------- filtering
def test_text_filters_every_column(opened):
    browser = opened("sweep")
    points = frame(N_POINTS)
    type_filter(browser, "HEADS=PE failed")
    chosen = points[points.sharding.str.contains("heads=pe") & (points.status == "failed")]
    assert 200 < len(chosen) < N_POINTS
    assert status(browser) == f"200 of {len(chosen):,} rows shown, 10,000 in all"
    assert column(browser, "key") == chosen.key[:200].tolist()
    type_filter(browser, "point00042")
    assert column(browser, "key") == ["point00042"]
    type_filter(browser, "there is nothing like it")
    assert column(browser, "key") == []
    assert status(browser) == "0 of 0 rows shown, 10,000 in all"


def test_a_choice_shows_feasible_or_failed_points_only(opened):
    browser = opened("sweep")
    points = frame(N_POINTS)
    choice = Select(points_of(browser).find_element(By.CLASS_NAME, "choice"))
    choice.select_by_value("feasible")
    assert column(browser, "key") == points[points.feasible.fillna(False)].key[:200].tolist()
    choice.select_by_value("failed")
    assert column(browser, "key") == points[points.status == "failed"].key[:200].tolist()
    choice.select_by_value("all")
    assert status(browser) == "200 of 10,000 rows shown"


def test_the_filter_holds_while_sorting(opened):
    browser = opened("run")
    type_filter(browser, "latency")
    sort_by(browser, "start_ps")
    sort_by(browser, "start_ps")
    assert set(column(browser, "cause")) == {"latency"}
    starts = numbers(column(browser, "start_ps"))
    assert len(starts) > 1
    assert starts == sorted(starts, reverse=True)


def test_more_rows_are_shown_on_demand(opened):
    browser = opened("sweep")
    more = points_of(browser).find_element(By.CLASS_NAME, "more")
    assert len(column(browser, "key")) == 200
    more.click()
    assert column(browser, "key") == frame(N_POINTS).key[:400].tolist()
    assert status(browser) == "400 of 10,000 rows shown"
    type_filter(browser, "point0012")
    assert len(column(browser, "key")) == 10
    assert not more.is_displayed()


def test_the_cells_are_the_numbers_of_the_points(opened):
    browser = opened("sweep")
    points = frame(N_POINTS)[:200]
    assert column(browser, "makespan_ps") == ["–" if pd.isna(ps) else f"{ps:,}" for ps in points.makespan_ps]


# ---------------------------------------------------------------- printing
@pytest.mark.parametrize("name", PAGES)
def test_it_prints(opened, name):
    browser = opened(name)
    pdf = base64.b64decode(browser.print_page())
    assert pdf.startswith(b"%PDF-")
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") >= 1
    assert len(pdf) > 20_000


@pytest.mark.parametrize("name", PAGES)
def test_paper_shows_no_controls_and_cuts_nothing_off(opened, name):
    browser = opened(name, 700)  # A4 without its margins
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert not any(e.is_displayed() for e in browser.find_elements(By.CSS_SELECTOR, "nav, .controls, .more, .copy"))
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 700
        shown = "return [...document.querySelectorAll('.points')].map(p => p.querySelectorAll('tbody tr').values()"
        shown += ".filter(row => row.offsetHeight).toArray().length)"
        assert all(0 < rows <= 40 for rows in browser.execute_script(shown))
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
