.PHONY: install quick test all
install: ; bash scripts/install.sh
quick: ; bash scripts/test.sh --quick
test: ; bash scripts/test.sh
all: ; bash scripts/test.sh --all
