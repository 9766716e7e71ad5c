// A fact of a host: a value and where it was read, or the reason why it is not known. A rule that needs a fact which is
// not known says so and gives no verdict; nothing in this room takes "could not be read" for "is not so".
#pragma once

#include <string>
#include <utility>

namespace tensorwire::host {

template <class T>
class Fact {
 public:
  Fact() = default;
  Fact(T value, std::string where) : value_(std::move(value)), known_(true), where_(std::move(where)) {}

  [[nodiscard]] static Fact unknown(std::string why, std::string where) {
    Fact fact;
    fact.why_ = std::move(why);
    fact.where_ = std::move(where);
    return fact;
  }

  [[nodiscard]] bool known() const noexcept { return known_; }
  explicit operator bool() const noexcept { return known_; }

  /// Only of a fact that is known.
  [[nodiscard]] const T& operator*() const noexcept { return value_; }
  [[nodiscard]] const T* operator->() const noexcept { return &value_; }
  [[nodiscard]] T value_or(T other) const { return known_ ? value_ : std::move(other); }
  /// It is known and equals `value`.
  [[nodiscard]] bool is(const T& value) const { return known_ && value_ == value; }

  /// A path, or the command that prints it.
  [[nodiscard]] const std::string& where() const noexcept { return where_; }
  /// "Permission denied (EACCES)"; empty when it is known.
  [[nodiscard]] const std::string& why() const noexcept { return why_; }

  /// A fact that follows from this one: `compute` is given the value and gives the new one.
  template <class Compute>
  [[nodiscard]] auto then(Compute compute) const -> Fact<decltype(compute(std::declval<const T&>()))> {
    using Result = Fact<decltype(compute(std::declval<const T&>()))>;
    return known_ ? Result{compute(value_), where_} : Result::unknown(why_, where_);
  }

 private:
  T value_{};
  bool known_ = false;
  std::string where_;
  std::string why_ = "was not read";
};

}  // namespace tensorwire::host
