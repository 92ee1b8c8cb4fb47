// Compiles every kernel that launches of any length can come to, up to a length, and shows what
// some of them take: no GPU needed.
//
//   dispatch [head_dim] [longest]
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "runtime/dispatcher.h"
#include "templates/attention_chooser.h"

namespace fc = flashcore;

int main(int argc, char** argv) {
  try {
    const int head_dim = argc > 1 ? std::stoi(argv[1]) : 128;
    const std::int64_t longest = argc > 2 ? std::stoll(argv[2]) : 8192;
    const fc::AttentionSpec spec{.head_dim = head_dim, .mask = fc::causal()};
    const fc::Target& target = fc::find_target("sm_90a");

    // With a device in place of -1 this loads the kernels as well; kernel.launch(tensors, scalars,
    // stream) then waits for nothing. It may be called at once, too: what it lacks is built meanwhile.
    const auto chooser = std::make_shared<fc::AttentionChooser>(spec, target);
    fc::Dispatcher kernel(fc::attention_forward(spec), target, chooser);
    const fc::AttentionProblems problems{{1, 64}, {1, 64}, {1, longest}, {1, longest}};
    const auto lists = chooser->choose_all(problems);
    for (const std::size_t list : lists) kernel.prepare(chooser->schedules(list), -1);
    // And those that run one after another where query rows are few and keys are split.
    const auto alternatives = chooser->all_alternatives(problems);
    for (const std::size_t number : alternatives) kernel.prepare_alternative(number, -1);
    std::printf("%zu kernels serve every length up to %lld, and %zu with split keys\n",
                lists.size(), static_cast<long long>(longest), 2 * alternatives.size());

    for (std::int64_t length = 64; length <= longest; length *= 4) {
      const auto list = chooser->choose(std::array<std::int64_t, 4>{4, 16, length, length});
      const fc::Schedule schedule = chooser->schedules(list).front();
      std::printf("%lld rows: tiles of %d rows and %d keys\n", static_cast<long long>(length),
                  schedule.tiles.at("rows"), schedule.tiles.at("cols"));
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
