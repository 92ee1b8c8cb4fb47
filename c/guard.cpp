#include "c/guard.h"

#include <exception>

#include "dsl/error.h"

namespace flashcore::c {
namespace {

struct Failure {
  std::string what, why, fix, file;
  fc_error view{};
};

Failure& failure() {
  thread_local Failure last;
  return last;
}

fc_status keep(fc_status status, const Error& error) {
  const Complaint& c = error.complaint();
  return fail(status, c.what, c.why, c.fix, c.where.file, c.where.line);
}

}  // namespace

fc_status fail(fc_status status, std::string what, std::string why, std::string fix,
               std::string file, int line) {
  Failure& last = failure();
  last.what = std::move(what);
  last.why = std::move(why);
  last.fix = std::move(fix);
  last.file = std::move(file);
  last.view = {.status = status,
               .what = last.what.c_str(),
               .why = last.why.c_str(),
               .fix = last.fix.c_str(),
               .file = last.file.c_str(),
               .line = line};
  return status;
}

fc_status fail_as_thrown() {
  try {
    throw;
  } catch (const SpecError& error) {
    return keep(FC_SPEC_ERROR, error);
  } catch (const ScheduleError& error) {
    return keep(FC_SPEC_ERROR, error);
  } catch (const CompileError& error) {
    return keep(FC_COMPILE_ERROR, error);
  } catch (const CacheError& error) {
    return keep(FC_CACHE_ERROR, error);
  } catch (const DeviceError& error) {
    return keep(FC_DEVICE_ERROR, error);
  } catch (const Error& error) {
    return keep(FC_INTERNAL_ERROR, error);
  } catch (const std::exception& error) {
    return fail(FC_INTERNAL_ERROR, "an unexpected failure", error.what(), "a report");
  } catch (...) {
    return fail(FC_INTERNAL_ERROR, "an unexpected failure", "it has no description", "a report");
  }
}

}  // namespace flashcore::c

const fc_error* fc_last_error(void) {
  static const fc_error none{
      .status = FC_OK, .what = "", .why = "", .fix = "", .file = "", .line = 0};
  const fc_error& view = flashcore::c::failure().view;
  return view.what == nullptr ? &none : &view;
}
