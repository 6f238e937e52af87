import pytest
from rank_pool import RankPool


@pytest.fixture(scope="session")
def pool():
    made = RankPool()
    yield made
    made.close()
