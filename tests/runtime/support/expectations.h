// What the tests of the runtime share with GoogleTest.
#pragma once

#include <exception>
#include <string>

#include <gtest/gtest.h>

#include "tests/runtime/support/kernels.h"

namespace flashcore::test {

/// The message of the error that `action` throws; the test fails if it throws none of this type.
template <class ErrorType, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const ErrorType& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no exception";
  return "";
}

}  // namespace flashcore::test

/// For tests of the compiler: CI installs it, a bare machine skips them.
#define FLASHCORE_REQUIRE_NVRTC() \
  if (flashcore::test::installed_nvrtc() == nullptr) GTEST_SKIP() << "no libnvrtc on this machine"
