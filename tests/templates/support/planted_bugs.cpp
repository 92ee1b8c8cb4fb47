#include "tests/templates/support/planted_bugs.h"

#include <algorithm>
#include <memory>

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/emulator/host_compiler.h"

namespace flashcore {
namespace {

/// What can stand behind a condition: a call, which may have one of its own in front.
bool is_statement(const std::string& text) {
  static const std::regex statement(R"((if \([^;{}]*\) )?fc::[^;{}]*;)");
  return std::regex_match(text, statement);
}

/// The kernel with one of several replacements at a time. Where all of them are statements, the kernel is
/// compiled once, with an `if` at each place that asks its variable `planted` which of them holds.
class PlantedKernel {
 public:
  PlantedKernel(const KernelSource& source, const std::vector<std::smatch>& places,
                const std::string& replacement)
      : source_(source), places_(places), replacement_(replacement) {
    if (std::ranges::all_of(places, [&](const std::smatch& place) {
          const std::string instead = place.format(replacement);
          return is_statement(place.str()) &&
                 (instead.empty() || instead == ";" || is_statement(instead));
        }))
      compile_all();
  }

  /// Valid until the next call. `which` counts places from 0.
  const KernelSource& with(std::size_t which) {
    if (planted_ != nullptr) {
      *planted_ = static_cast<int>(which);
      // A launch of the same text on the same bytes would not run again; the emulator compiles the body alone.
      all_.prelude = fmt::format("// planted {}\n", which);
    } else {
      all_ = replaced(source_, places_[which], places_[which].format(replacement_));
    }
    return all_;
  }

 private:
  void compile_all() {
    all_ = source_;
    for (std::size_t i = places_.size(); i-- > 0;) {
      const std::smatch& place = places_[i];
      all_ = replaced(all_, place,
                      fmt::format("if (planted == {}) {{ {} }} else {{ {} }}", i,
                                  place.format(replacement_), place.str()));
    }
    all_.body = "extern \"C\" int planted; int planted = -1; " + all_.body;
    host_ = compile_for_host(all_, {});
    planted_ = static_cast<int*>(dlsym(host_->library, "planted"));
    if (planted_ == nullptr) throw InternalError("the compiled kernel has no variable `planted`");
  }

  const KernelSource& source_;
  const std::vector<std::smatch>& places_;
  const std::string& replacement_;
  KernelSource all_;
  std::shared_ptr<const HostKernel> host_;
  int* planted_ = nullptr;
};

}  // namespace

AttentionSpec small_spec() {
  AttentionSpec spec;
  spec.head_dim = 32;
  spec.mask = causal();
  spec.lse = true;
  return spec;
}

std::vector<std::smatch> matches(const std::string& body, const std::regex& pattern) {
  return {std::sregex_iterator(body.begin(), body.end(), pattern), std::sregex_iterator()};
}

KernelSource replaced(const KernelSource& source, const std::smatch& place,
                      const std::string& text) {
  KernelSource changed = source;
  changed.body.replace(static_cast<std::size_t>(place.position()),
                       static_cast<std::size_t>(place.length()), text);
  return changed;
}

int line_at(const std::string& body, std::ptrdiff_t position) {
  return 1 + static_cast<int>(std::count(body.begin(), body.begin() + position, '\n'));
}

void expect_right(const AttentionSpec& spec, const KernelSource& source,
                  std::span<const AttentionInputs> runs) {
  const Outcome outcome = outcome_of(spec, source, runs);
  EXPECT_FALSE(outcome.fault);
  EXPECT_EQ(outcome.words, "");
}

int expect_missed(const AttentionSpec& spec, const KernelSource& source, const std::string& pattern,
                  const std::string& replacement, const std::vector<FaultKind>& kinds,
                  std::span<const AttentionInputs> runs) {
  const std::regex expression(pattern);
  const std::vector<std::smatch> places = matches(source.body, expression);
  EXPECT_FALSE(places.empty()) << "nothing in the kernel matches " << pattern;
  PlantedKernel planted(source, places, replacement);
  for (std::size_t i = 0; i < places.size(); ++i) {
    SCOPED_TRACE(line_of(source, line_at(source.body, places[i].position())));
    const Outcome outcome = outcome_of(spec, planted.with(i), runs);
    EXPECT_TRUE(outcome.fault) << (outcome.words.empty() ? "nobody missed it" : outcome.words);
    if (!outcome.fault) continue;
    EXPECT_TRUE(std::find(kinds.begin(), kinds.end(), *outcome.fault) != kinds.end())
        << "the wrong complaint: " << outcome.words;
  }
  return static_cast<int>(places.size());
}

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

}  // namespace flashcore
