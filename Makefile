# The commands of a working day. `make demo` is the first one to try.
BUILD := build/release
PYTHON := .venv/bin/python
export PYTHONPATH := $(CURDIR)/$(BUILD)/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: demo test module build setup bench fuzz wheel wheels check-wheel format tidy clean

demo: module
	@echo; $(PYTHON) examples/python/demo.py

# C++ finds the compiler that Python's wheel brought, where nothing else says which one to use.
NVRTC = $(firstword $(wildcard $(CURDIR)/.venv/lib/python*/site-packages/nvidia/cu*/lib/libnvrtc.so.*))

# Both run, whatever the first one says. pytest has a process for each core, so that more threads of NumPy's
# products would only wait for each other.
test: build
	FLASHCORE_NVRTC="$${FLASHCORE_NVRTC:-$(NVRTC)}" \
	  ctest --test-dir $(BUILD) --output-on-failure --timeout 300 -j $(shell nproc); cpp=$$?; \
	OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest -q -n $(shell nproc) --dist worksteal && exit $$cpp

# Minutes for each reader of foreign bytes; FUZZ='--seconds 60 --only spec' for less.
fuzz: setup
	$(PYTHON) tests/fuzz/run.py $(FUZZ)

bench: module
	$(PYTHON) benchmarks/attention.py

# Shares the objects of `build`.
wheel: build
	rm -rf dist
	$(PYTHON) -m pip wheel -q . --no-deps --no-build-isolation -w dist --config-settings=build-dir=$(BUILD)

# For every CPython on PATH, with a manylinux tag (CONTRIBUTING.md, Releasing).
wheels: setup
	$(PYTHON) tools/build_wheels.py $(WHEELS)

# As a user has it: a fresh environment, dependencies from PyPI, no source tree in sight. Without a compiler, with one
# that makes a bundle, and without it again, where the bundle serves.
IN_VENV := build/wheel-venv/bin/
CHECK = cd build && $(1) FLASHCORE_CACHE=off PYTHONPATH= wheel-venv/bin/python ../tests/tools/check_wheel.py
# A toolkit of this machine is not what a user without one has.
CHECK_WITHOUT_COMPILER = $(call CHECK,FLASHCORE_NVRTC=/nowhere/libnvrtc.so) --without-compiler
check-wheel: wheel
	python3 -m venv --clear build/wheel-venv
	rm -f build/shipped.fcb
	$(IN_VENV)pip install -q --disable-pip-version-check dist/*.whl
	$(CHECK_WITHOUT_COMPILER) --wheel ../dist/*.whl
	$(IN_VENV)pip install -q --disable-pip-version-check "$$(echo dist/*.whl)[nvrtc]"
	$(call CHECK)
	$(IN_VENV)pip uninstall -q -y nvidia-cuda-nvrtc
	$(CHECK_WITHOUT_COMPILER)

# The output of a configuration that succeeds interests nobody.
configure = cmake --preset release -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) $(1) \
  >build/configure.log 2>&1 || (cat build/configure.log; false)

# The Python module alone: neither tests nor what they need. `build` goes on from its objects.
module:
	@tools/setup.sh build
	@$(call configure,-DFLASHCORE_TESTS=OFF)
	@cmake --build $(BUILD) -j $(shell nproc) --target flashcore_python

build: setup
	@$(call configure,-DFLASHCORE_TESTS=ON)
	@cmake --build $(BUILD) -j $(shell nproc)

setup:
	@tools/setup.sh

SOURCES = $(shell git ls-files '*.h' '*.cpp' '*.cuh')
format: setup
	clang-format -i $(SOURCES)
	ruff check -q --fix
	ruff format -q

# Debian's default, 14, does not know std::source_location: apt-get install clang-tidy-16.
CLANG_TIDY ?= clang-tidy-16
tidy: setup
	cmake --preset dev >/dev/null
	$(CLANG_TIDY) -p build/dev --quiet $(filter %.cpp,$(SOURCES))

clean:
	rm -rf build dist
