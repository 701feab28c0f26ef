"""`python -m cdp` is `cdp`."""

from cdp.cli.main import run

if __name__ == "__main__":
    run()
