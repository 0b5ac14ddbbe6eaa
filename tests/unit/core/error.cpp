#include "lockstep/core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "lockstep/core/shape.hpp"
#include "support/comma_locale.hpp"

namespace ls = lockstep;

TEST_CASE("each kind of error can be caught as lockstep::Error") {
  STATIC_CHECK(std::is_base_of_v<std::runtime_error, lockstep::Error>);
  STATIC_CHECK(std::is_base_of_v<lockstep::Error, lockstep::UsageError>);
  STATIC_CHECK(std::is_base_of_v<lockstep::Error, lockstep::DeviceError>);
  STATIC_CHECK(std::is_base_of_v<lockstep::FileError, lockstep::DataError>);
  STATIC_CHECK(std::is_base_of_v<lockstep::FileError, lockstep::WeightsError>);
  CHECK_THROWS_AS(throw lockstep::DataError("a.idx", "truncated"), lockstep::Error);
}

TEST_CASE("the message of a file error begins with the path, which is also a member") {
  const lockstep::WeightsError error("w.safetensors", "the header is cut off; copy the file again");
  CHECK(std::string(error.what()) == "w.safetensors: the header is cut off; copy the file again");
  CHECK(error.path() == "w.safetensors");
}

TEST_CASE("errors format their messages") {
  const std::string name = "conv2d";
  CHECK(
      std::string(ls::UsageError("layer {}{}; {}", name, std::string_view(", 3 of 4").substr(0, 3),
                                 to_string(ls::shape(2, 3)))
                      .what()) == "layer conv2d, 3; (2, 3)");
  const ls::DataError file("a.idx", "has {} bytes", 3);
  CHECK(std::string(file.what()) == "a.idx: has 3 bytes");
  CHECK(file.path() == "a.idx");
  const ls::OutOfMemory memory(7, 5, "{} of {} bytes", 5, 7);
  CHECK(std::string(memory.what()) == "5 of 7 bytes");
  CHECK(memory.bytes() == 7);
  CHECK(memory.free() == 5);
  const ls::CollectiveTimeout late(2, "replica {} did not come", 2);
  CHECK(std::string(late.what()) == "replica 2 did not come");
  CHECK(late.peer() == 2);
  CHECK(!ls::CollectiveTimeout("replica {} did not come", 2).peer());
}

TEST_CASE("braces in a message without arguments are kept") {
  const std::string json = R"({"task": {}})";
  CHECK(std::string(ls::UsageError(json).what()) == json);
  CHECK(std::string(ls::UsageError("write {}").what()) == "write {}");
  CHECK(std::string(ls::FileError("a.json", "write {}").what()) == "a.json: write {}");
}

TEST_CASE("numbers of any type are formatted without loss") {
  CHECK(std::string(ls::Error("{} {} {}", 0, std::uint8_t{200}, -1).what()) == "0 200 -1");
  CHECK(std::string(ls::Error("{} {}", std::numeric_limits<std::int64_t>::min(),
                              std::numeric_limits<std::uint64_t>::max())
                        .what()) == "-9223372036854775808 18446744073709551615");
  CHECK(std::string(ls::Error("{} {} {}", std::numeric_limits<int>::min(), 0.5, 0.25f).what()) ==
        "-2147483648 0.5 0.25");
}

TEST_CASE("numbers in messages have a decimal point in every locale") {
  const CommaLocale locale;
  CHECK(std::string(ls::Error("{} {} {:.3f}", 1.5, 1234567, 1234.5).what()) ==
        "1.5 1234567 1234.500");
  CHECK(std::stod("1,5") == 1.5);  // restored the program's locale
}
