// Numbers as text. Expected values: Keras' readable_memory_size and Python's format.
#include "lockstep/core/format_numbers.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <limits>

#include "support/comma_locale.hpp"

namespace detail = lockstep::detail;

TEST_CASE("counts have thousands separators") {
  CHECK(detail::format_count(0) == "0");
  CHECK(detail::format_count(999) == "999");
  CHECK(detail::format_count(1000) == "1,000");
  CHECK(detail::format_count(347'146) == "347,146");
  CHECK(detail::format_count(1'234'567'890) == "1,234,567,890");
}

TEST_CASE("bytes have the units of Keras' summary") {
  CHECK(detail::format_bytes(0) == "0.00 B");
  CHECK(detail::format_bytes(1023) == "1023.00 B");
  CHECK(detail::format_bytes(1024) == "1.00 KB");
  CHECK(detail::format_bytes(347'146 * 4) == "1.32 MB");
  CHECK(detail::format_bytes(std::uint64_t{5} << 60) == "5120.00 PB");
}

TEST_CASE("JSON numbers read back as the same double") {
  for (const double x : {0.1, 1.0 / 3, -2.5e-300, 1e22, 0.0, 123456789.123456789,
                         std::numeric_limits<double>::denorm_min()})
    CHECK(std::strtod(detail::json_number(x).c_str(), nullptr) == x);
  CHECK(detail::json_number(0.1) == "0.1");
  CHECK(detail::json_number(std::numeric_limits<double>::infinity()) == "null");
  CHECK(detail::json_number(-std::numeric_limits<double>::quiet_NaN()) == "null");
}

TEST_CASE("JSON strings are escaped") {
  CHECK(detail::json_string("a\"b\\c\n\x01ü") == "\"a\\\"b\\\\c\\u000a\\u0001ü\"");
}

TEST_CASE("a NaN metric is formatted without a sign") {
  CHECK(detail::format_metric(-std::numeric_limits<double>::quiet_NaN()) == "nan");
}

TEST_CASE("formatted numbers have a decimal point in every locale") {
  const CommaLocale locale;
  CHECK(detail::format_metric(0.5) == "0.5000");
  CHECK(detail::format_metric(0.0005) == "5.0000e-04");
  CHECK(detail::format_bytes(1536) == "1.50 KB");
  CHECK(detail::format_count(1'234'567) == "1,234,567");
  CHECK(detail::json_number(1234.5) == "1234.5");
  CHECK(detail::python_number(1234.5) == "1234.5");
}
