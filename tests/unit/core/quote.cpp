#include "lockstep/core/quote.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

using lockstep::detail::printable;
using lockstep::detail::quote;
using lockstep::detail::shown_name;

TEST_CASE("text in all languages is printed as it is") {
  for (const std::string text : {"", "a 'b' \"c\" \\",
                                 "gr\xC3\xB6\xC3\x9F"
                                 "e",
                                 "\xC2\xA0\xE5\xB1\x82\xF0\x9F\x99\x82"})
    CHECK(printable(text) == text);
  CHECK(quote("a \xC3\xB6") == "\"a \\xc3\\xb6\"");
  CHECK(shown_name("a") == "'a'");
}

TEST_CASE("control characters, invisible ones and invalid UTF-8 are escaped") {
  CHECK(printable(std::string("\0\n\x1B[31m\x7F", 8)) == "\\x00\\x0a\\x1b[31m\\x7f");
  CHECK(printable("\xC2\x80z\xC2\x9Bz\xC2\x9F") == "\\xc2\\x80z\\xc2\\x9bz\\xc2\\x9f");
  CHECK(printable("\xE2\x80\x8B") == "\\xe2\\x80\\x8b");  // of no width
  CHECK(printable("\xE2\x80\xA8") == "\\xe2\\x80\\xa8");  // a line separator
  CHECK(printable("\xE2\x80\xAE") == "\\xe2\\x80\\xae");  // from right to left
  CHECK(printable("\xD8\x9C\xE2\x81\xA6\xEF\xBB\xBF") ==
        "\\xd8\\x9c\\xe2\\x81\\xa6\\xef\\xbb\\xbf");
  CHECK(printable("\xE2\x80\x8A\xE2\x80\x90\xE2\x80\xAF") ==
        "\xE2\x80\x8A\xE2\x80\x90\xE2\x80\xAF");  // next to them
  CHECK(printable("a\xFFz\xC3") == "a\\xffz\\xc3");
  CHECK(printable("\xC0\xAF\xED\xA0\x80") == "\\xc0\\xaf\\xed\\xa0\\x80");
}

TEST_CASE("longer text is cut between characters") {
  CHECK(printable("abcd", 4) == "abcd");
  CHECK(printable("abcde", 4) == "abcd...");
  CHECK(printable("abc\n", 4) == "abc...");
  CHECK(printable("abc\xC3\xB6", 4) == "abc...");
  CHECK(printable("a", 0) == "...");
  CHECK(printable(std::string(700, 'x')).size() == 603);
  CHECK(quote(std::string(81, 'x')) == '"' + std::string(80, 'x') + "...\"");
  CHECK(shown_name(std::string(81, 'x')) == "'" + std::string(80, 'x') + "...'");
  const std::string once = printable(std::string(300, '\n'), 200);
  CHECK(printable(once, 203) == once);
}
