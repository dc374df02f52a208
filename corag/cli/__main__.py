"""``python -m corag.cli``: the ``corag`` command."""

import sys

from corag.cli.main import main

sys.exit(main())
