#include "lockstep/core/format_text.hpp"

#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace ls = lockstep;

namespace {

/// Whether both format `value` alike; the formats are those of fmt.
template <class T>
void as_fmt(const T& value) {
  CHECK(ls::format_text("{}", value) == fmt::format("{}", value));
  CHECK(ls::format_text("|{:>12}|{:<{}}|", value, value, 9) ==
        fmt::format("|{:>12}|{:<{}}|", value, value, 9));
}

}  // namespace

TEST_CASE("values of all types are formatted as by fmt") {
  as_fmt(true);
  as_fmt('c');
  as_fmt(std::int8_t{-7});
  as_fmt(std::uint8_t{200});
  as_fmt(short{-3});
  as_fmt(std::numeric_limits<int>::min());
  as_fmt(std::numeric_limits<std::int64_t>::min());
  as_fmt(std::numeric_limits<std::uint64_t>::max());
  as_fmt(0.1f);
  as_fmt(0.1);
  as_fmt(std::numeric_limits<double>::infinity());
  as_fmt(std::string("a text"));
  as_fmt(std::string_view("a view").substr(2));
  as_fmt("a literal");
  CHECK(ls::format_text("{:08x} {:.3f} {:e}", 0xabcu, 2.0 / 3, 1e-9f) ==
        fmt::format("{:08x} {:.3f} {:e}", 0xabcu, 2.0 / 3, 1e-9f));
}

TEST_CASE("doubled braces are braces, and a text needs no values") {
  CHECK(ls::format_text(R"({{"epoch": {}}})", 3) == R"({"epoch": 3})");
  CHECK(ls::format_text("{{}}") == "{}");
}

TEST_CASE("values that only fmt's front knows are formatted, too") {
  enum Plain : std::uint8_t { five = 5 };
  CHECK(ls::format_text("{}", five) == "5");
  const char* const missing = nullptr;
  CHECK(ls::format_text("{}", missing) == "(null)");
  CHECK(ls::format_text("{0} and {0}", 7) == "7 and 7");
}

#ifndef LOCKSTEP_CHECK_FORMATS
TEST_CASE("a format that does not fit its value loses neither the text nor the values") {
  CHECK(ls::format_text("bad: {:d} of {}", "name", 3) == "bad: {:d} of {} (name, 3)");
}
#endif

TEST_CASE("fields are counted") {
  using ls::detail::values_in;
  STATIC_CHECK(values_in("") == 0);
  STATIC_CHECK(values_in("{} {:>4}, {{}}") == 2);
  STATIC_CHECK(values_in("{:>{}}") == 2);
  STATIC_CHECK(values_in("{0} and {0}, {1}") == 2);
  STATIC_CHECK(values_in("{") == ls::detail::malformed);
  STATIC_CHECK(values_in("{}}") == ls::detail::malformed);
}
