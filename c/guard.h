// Nothing that is thrown crosses the border: every function of the C interface runs in `guarded`,
// which keeps what happened for the thread.
#pragma once

#include <string>

#include "c/flashcore.h"

namespace flashcore::c {

/// Keeps a failure; returns its status.
fc_status fail(fc_status status, std::string what, std::string why, std::string fix,
               std::string file = "", int line = 0);
/// Keeps what is being handled.
fc_status fail_as_thrown();

inline fc_status refuse_null(const char* function, const char* argument) {
  return fail(FC_ARGUMENT_ERROR, std::string(function) + "(" + argument + ")", "it is NULL",
              "a pointer to what flashcore.h says");
}

inline fc_status refuse_index(const char* function, std::size_t index, std::size_t count) {
  return fail(FC_ARGUMENT_ERROR, std::string(function) + "(" + std::to_string(index) + ")",
              "there are " + std::to_string(count), "an index from 0 on, below that");
}

template <class Run>
fc_status guarded(const Run& run) {
  try {
    run();
    return FC_OK;
  } catch (...) {
    return fail_as_thrown();
  }
}

}  // namespace flashcore::c
