// Text with indentation. Scopes close themselves, so that braces always match.
#pragma once

#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace flashcore {

class Writer {
 public:
  /// Ends its scope when it goes: back one indentation, with a closing brace if there was one.
  class Scope {
   public:
    Scope() = default;
    Scope(Writer& writer, std::string_view closing) : writer_(&writer), closing_(closing) {
      ++writer.depth_;
    }
    Scope(Scope&& other) noexcept
        : writer_(std::exchange(other.writer_, nullptr)), closing_(other.closing_) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    Scope& operator=(Scope&&) = delete;
    ~Scope() {
      if (!writer_) return;
      --writer_->depth_;
      if (!closing_.empty()) writer_->line("{}", closing_);
    }

   private:
    Writer* writer_ = nullptr;
    std::string_view closing_;
  };

  /// Scopes inside each other, ended from the inside out.
  class Scopes {
   public:
    Scopes() = default;
    Scopes(Scopes&&) = default;
    Scopes& operator=(const Scopes&) = delete;
    ~Scopes() {
      while (!scopes_.empty()) scopes_.pop_back();
    }
    void push_back(Scope scope) { scopes_.push_back(std::move(scope)); }

   private:
    std::vector<Scope> scopes_;
  };

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    append_line(format, fmt::make_format_args(args...));
  }
  void blank() {
    if (!text_.ends_with("\n\n") && !text_.ends_with("{\n")) text_ += '\n';
  }
  /// One line, whatever names of the author's are in it.
  void comment(std::string_view words) {
    std::string text(words);
    for (char& c : text)
      if (c < ' ' || c == '\\') c = ' ';
    line("// {}", text);
  }

  /// `head {` ... `}`
  template <class... Args>
  [[nodiscard]] Scope block(fmt::format_string<Args...> format, Args&&... args) {
    return open_block(format, fmt::make_format_args(args...));
  }
  /// `if (condition) {` ... `}`; nothing where there is no condition.
  [[nodiscard]] Scope guarded(std::string_view condition) {
    return condition.empty() ? Scope() : block("if ({})", condition);
  }
  /// An unrolled loop `for (int name = 0; name < count; ++name) {`.
  [[nodiscard]] Scope unrolled(std::string_view name, int count, bool braces = true) {
    line("#pragma unroll");
    line("for (int {0} = 0; {0} < {1}; ++{0}){2}", name, count, braces ? " {" : "");
    return Scope(*this, braces ? "}" : "");
  }
  /// The same where there are several iterations; nothing where there is one.
  [[nodiscard]] Scope repeated(std::string_view name, int count, bool braces = true) {
    return count > 1 ? unrolled(name, count, braces) : Scope();
  }

  [[nodiscard]] std::string take() { return std::exchange(text_, {}); }

 private:
  void append_line(fmt::string_view format, fmt::format_args args) {
    text_.append(static_cast<std::size_t>(2 * depth_), ' ');
    fmt::vformat_to(std::back_inserter(text_), format, args);
    text_ += '\n';
  }
  [[nodiscard]] Scope open_block(fmt::string_view format, fmt::format_args args) {
    const std::string head = fmt::vformat(format, args);
    line("{}{{", head.empty() ? head : head + " ");
    return Scope(*this, "}");
  }

  std::string text_;
  int depth_ = 0;
};

}  // namespace flashcore
