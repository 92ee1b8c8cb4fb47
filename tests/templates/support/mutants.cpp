#include "tests/templates/support/mutants.h"

#include <functional>
#include <map>
#include <regex>
#include <sstream>

namespace flashcore {
namespace {

/// Calls visit(mistake, the changed line).
using Visit = std::function<void(const std::string&, const std::string&)>;

void for_each_match(const std::string& line, const char* pattern,
                    const std::function<void(const std::smatch&)>& visit) {
  const std::regex expression(pattern);
  for (std::sregex_iterator at(line.begin(), line.end(), expression), end; at != end; ++at)
    visit(*at);
}

std::string with(const std::string& line, std::ptrdiff_t at, std::ptrdiff_t length,
                 const std::string& text) {
  return std::string(line).replace(static_cast<std::size_t>(at), static_cast<std::size_t>(length),
                                   text);
}

/// Integers: not parts of names, not of numbers with a point.
void change_numbers(const std::string& line, const Visit& visit) {
  for_each_match(line, R"((^|[^\w.])(\d+)(?![\w.]))", [&](const std::smatch& match) {
    const int number = std::stoi(match[2]);
    visit("+1", with(line, match.position(2), match.length(2), std::to_string(number + 1)));
    // A division by zero would end the test, not fail it.
    const bool divides =
        line.substr(0, static_cast<std::size_t>(match.position(2))).find_last_of("/%") + 2 ==
        static_cast<std::size_t>(match.position(2));
    if (!(divides && number == 1))
      visit("-1", with(line, match.position(2), match.length(2), std::to_string(number - 1)));
  });
}

void change_comparisons(const std::string& line, const Visit& visit) {
  static const std::map<std::string, std::string> others = {
      {" < ", " <= "}, {" <= ", " < "}, {" > ", " >= "}, {" >= ", " > "}, {" == ", " != "}};
  for_each_match(line, " (<|<=|>|>=|==) ", [&](const std::smatch& match) {
    visit("comparison", with(line, match.position(), match.length(), others.at(match[0])));
  });
}

/// A statement of one line that declares nothing.
void drop(const std::string& line, const Visit& visit) {
  static const std::regex statement(
      R"(^ *((if \(.*\) )?fc::[a-z]\w*(<[^;]*>)?\(.*\);|[\w\[\]()/ ]+ (=|[*/^]=|\+=) [^;]*;|.*<- .*;)$)"),
      declaration(R"(^ *(const |float |int |bool |fc::\w+ \w+ =|fc::\w+\* ))");
  if (std::regex_match(line, statement) && !std::regex_search(line, declaration))
    visit("dropped", "");
}

void swap_arguments(const std::string& line, const Visit& visit) {
  for_each_match(line, R"(fc::\w+(<[^()]*>)?\(([\w\[\]. +*/]+), ([\w\[\]. +*/]+)(?=[,)]))",
                 [&](const std::smatch& match) {
                   // min, max, fma: symmetric
                   if (match[0].str().starts_with("fc::m") || match[0].str().starts_with("fc::fma"))
                     return;
                   visit("swapped", with(line, match.position(2),
                                         match.position(3) + match.length(3) - match.position(2),
                                         match[3].str() + ", " + match[2].str()));
                 });
}

void unmask(const std::string& line, const Visit& visit) {
  for_each_match(line, R"(([\w\[\]()/]+) \? )", [&](const std::smatch& match) {
    visit("unmasked", with(line, match.position(1), match.length(1), "true"));
  });
}

}  // namespace

std::vector<Mutant> mutants_of(const std::string& body) {
  std::vector<std::string> lines;
  std::istringstream text(body);
  for (std::string line; std::getline(text, line);) lines.push_back(line);

  std::vector<Mutant> all;
  bool in_kernel = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    const std::size_t begin = line.find_first_not_of(' ');
    if (line.find("__grid_constant__") != std::string::npos) in_kernel = true;
    if (!in_kernel || begin == std::string::npos || line[begin] == '#' ||
        line.compare(begin, 2, "//") == 0 || line.find("__grid_constant__") != std::string::npos)
      continue;
    const Visit visit = [&](const std::string& mistake, const std::string& changed) {
      Mutant mutant{{}, static_cast<int>(i) + 1, mistake, line, changed};
      for (std::size_t k = 0; k < lines.size(); ++k)
        mutant.body += (k == i ? changed : lines[k]) + "\n";
      all.push_back(std::move(mutant));
    };
    change_numbers(line, visit);
    change_comparisons(line, visit);
    drop(line, visit);
    swap_arguments(line, visit);
    unmask(line, visit);
  }
  return all;
}

}  // namespace flashcore
