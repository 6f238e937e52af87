from exact_case import ExactCase


class TestNumba(ExactCase):
    backend = "numba"
    count = 70
