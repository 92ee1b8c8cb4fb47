import pickle

import pytest

import flashcore as fc


def test_the_family():
    for kind in (fc.SpecError, fc.ScheduleError):
        assert issubclass(kind, (fc.Error, ValueError))
        assert issubclass(kind, fc.Error)
        assert issubclass(kind, ValueError)
    for kind in (fc.CompileError, fc.CacheError, fc.DeviceError, fc.InternalError):
        assert issubclass(kind, fc.Error)
        assert issubclass(kind, RuntimeError)


def test_errors_of_cpp_carry_their_parts():
    with pytest.raises(fc.SpecError) as caught:
        fc.Program("program p\nfour")
    error = caught.value
    assert (error.what, error.file, error.line) == ('expected a declaration or "{"', "text", 2)
    assert error.why == 'found "four" in column 1'
    assert str(error) == (f"{error.what}\n  at:  text:2\n  why: {error.why}\n  try: {error.fix}")


def test_errors_survive_pickling():
    error = fc.ScheduleError("what", "why", "fix", "file.cpp", 7)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is fc.ScheduleError
    assert str(again) == str(error) == "what\n  at:  file.cpp:7\n  why: why\n  try: fix"
