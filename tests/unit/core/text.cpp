#include "lockstep/core/text.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "lockstep/core/error.hpp"
#include "support/comma_locale.hpp"

namespace ls = lockstep;

TEST_CASE("a message is its parts, one after another") {
  const std::string name = "conv2d";
  CHECK(ls::text({}).empty());
  CHECK(ls::text({"layer ", name, std::string_view(", 3 of 4").substr(0, 3), " ", ls::shape(2, 3),
                  "; "}) == "layer conv2d, 3 (2, 3); ");
}

TEST_CASE("numbers of any type are written whole") {
  CHECK(ls::text({0, " ", std::uint8_t{200}, " ", -1}) == "0 200 -1");
  CHECK(ls::text({std::numeric_limits<std::int64_t>::min(), " ",
                  std::numeric_limits<std::uint64_t>::max()}) ==
        "-9223372036854775808 18446744073709551615");
  CHECK(ls::text({std::numeric_limits<int>::min(), " ", 0.5, " ", 0.25f}) ==
        "-2147483648 0.500000 0.250000");
}

TEST_CASE("errors take the parts of their message") {
  CHECK(std::string(ls::UsageError({"epochs is ", 0}).what()) == "epochs is 0");
  // Two texts are no range of characters.
  CHECK(std::string(ls::UsageError({"a", "b"}).what()) == "ab");
  const ls::DataError error("a.idx", {"has ", 3, " bytes"});
  CHECK(std::string(error.what()) == "a.idx: has 3 bytes");
  CHECK(error.path() == "a.idx");
}

TEST_CASE("numbers in messages have a point in every locale") {
  const CommaLocale locale;
  CHECK(ls::text({1.5, " ", 1234567}) == "1.500000 1234567");
  CHECK(ls::detail::print("%.3f %d", 1234.5, 1234567) == "1234.500 1234567");
  CHECK(std::stod("1,5") == 1.5);  // the program's locale is as before
}
