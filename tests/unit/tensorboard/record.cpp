#include "lockstep/tensorboard/record.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "support/event_reader.hpp"

namespace detail = lockstep::detail;

TEST_CASE("the masked CRC has the value of TFRecord's definition") {
  CHECK(detail::masked_crc32c("123456789") == 0xc78ab0e5);
  for (const std::string& text : {std::string(), std::string("a"), std::string(3000, '\x80')})
    CHECK(detail::masked_crc32c(text) == testing::bitwise_masked_crc(text));
}

TEST_CASE("records are appended with their lengths and CRCs") {
  std::string bytes;
  const std::vector<std::string> data{"", "x", std::string(70'000, 'y'), std::string("\0\n", 2)};
  for (const std::string& d : data) detail::append_record(bytes, d);
  CHECK(testing::records_of(bytes) == data);
}

TEST_CASE("each changed byte of a record is found") {
  std::string bytes;
  detail::append_record(bytes, "some data");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string wrong = bytes;
    wrong[i] ^= 1;
    CHECK_THROWS(testing::records_of(wrong));
  }
}
