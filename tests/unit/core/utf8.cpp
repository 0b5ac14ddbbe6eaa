#include "lockstep/core/utf8.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

using lockstep::detail::to_utf8;

TEST_CASE("well-formed UTF-8 is not changed") {
  // The first and the last code point of each length, and those around the surrogates.
  for (const std::string& text :
       {std::string(), std::string("loss"), std::string("\0\x7F", 2),
        std::string("\xC2\x80\xDF\xBF"), std::string("\xE0\xA0\x80\xEF\xBF\xBF"),
        std::string("\xED\x9F\xBF\xEE\x80\x80"), std::string("\xF0\x90\x80\x80\xF4\x8F\xBF\xBF")}) {
    CAPTURE(text);
    CHECK(to_utf8(text) == text);
  }
}

TEST_CASE("bytes that are not UTF-8 are replaced") {
  const std::string r = "\xEF\xBF\xBD";
  CHECK(to_utf8("caf\xE9") == "caf" + r);  // Latin-1
  CHECK(to_utf8("\x80"
                "a\xFF") == r + "a" + r);            // never at the beginning
  CHECK(to_utf8("\xC3\xA9\xC3") == "\xC3\xA9" + r);  // cut off
  CHECK(to_utf8("\xE2\x82z") == r + r + "z");
  CHECK(to_utf8("\xC1\xBF") == r + r);  // overlong
  CHECK(to_utf8("\xE0\x9F\xBF") == r + r + r);
  CHECK(to_utf8("\xF0\x8F\xBF\xBF") == r + r + r + r);
  CHECK(to_utf8("\xED\xA0\x80") == r + r + r);          // a surrogate
  CHECK(to_utf8("\xF4\x90\x80\x80") == r + r + r + r);  // above U+10FFFF
  CHECK(to_utf8("\xF5\x80\x80\x80") == r + r + r + r);
}
