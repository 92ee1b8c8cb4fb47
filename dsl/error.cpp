#include "dsl/error.h"

namespace flashcore {
namespace {

std::string render(const Complaint& c) {
  std::string text = c.what;
  if (c.where.known()) text += fmt::format("\n  at:  {}:{}", c.where.file, c.where.line);
  if (!c.why.empty()) text += fmt::format("\n  why: {}", c.why);
  if (!c.fix.empty()) text += fmt::format("\n  try: {}", c.fix);
  return text;
}

}  // namespace

Error::Error(Complaint complaint)
    : std::runtime_error(render(complaint)), complaint_(std::move(complaint)) {}

InternalError::InternalError(std::string what, const std::source_location& at)
    : Error({.what = "FlashCore met a bug of its own: " + std::move(what),
             .why = "an invariant of the compiler does not hold",
             .fix = "report it with the program (Program::text()) and the schedule",
             .where = at}) {}

}  // namespace flashcore
