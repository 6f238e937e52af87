"""Beside this file, pytest lets the tests of the backends, in the folders below, import stages and
backend_case.
"""
