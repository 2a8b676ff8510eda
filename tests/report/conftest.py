import pytest
from support.browser_pages import launched


@pytest.fixture(scope="session")
def chromium():
    """The browser that pages are opened in."""
    with launched() as browser:
        yield browser
