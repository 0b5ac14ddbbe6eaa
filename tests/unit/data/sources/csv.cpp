#include "lockstep/data/sources/csv.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "lockstep/data/sources/read_fields.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;

namespace {

template <class Element = float, class Target = std::int32_t>
auto parsed(const std::string& text, const ls::CsvOptions& options = {}) {
  return ls::detail::parse_csv<Element, Target>(text, "a.csv", options);
}
template <class T>
std::vector<T> listed(std::span<const T> numbers) {
  return {numbers.begin(), numbers.end()};
}

/// The output of Python's csv.writer with QUOTE_ALL.
const std::string of_python =
    "\"a \"\"quoted\"\", name\",\"b\n"
    "c\",\"d\",\"class\"\r\n"
    "\"-52407074581621.73\",\"-7.391544078297146e+17\",\"-5189292690574687.0\",\"-7\"\r\n"
    "\"2111990602.7865376\",\"-4.812919713439847e-07\",\"-6165117920.094009\",\"8\"\r\n"
    "\"6729229025.487775\",\"-2.057308459420781e-12\",\"-5.361559892466567e-12\",\"7\"\r\n"
    "\"-2.2012655822557425e-21\",\"3.428229507391851e-17\",\"-6.812001204754377e+16\",\"-8\"\r\n"
    "\"-3.9746468096857534e-20\",\"0.0006471410224665288\",\"-545.0182266906634\",\"4\"\r\n"
    "\"-2100731919985121.5\",\"-1.1075788789847873e-13\",\"7.577333206760833e-15\",\"-8\"\r\n";
const std::vector<double> of_python_x{
    -52407074581621.73,      -7.391544078297146e+17,  -5189292690574687.0,   2111990602.7865376,
    -4.812919713439847e-07,  -6165117920.094009,      6729229025.487775,     -2.057308459420781e-12,
    -5.361559892466567e-12,  -2.2012655822557425e-21, 3.428229507391851e-17, -6.812001204754377e+16,
    -3.9746468096857534e-20, 0.0006471410224665288,   -545.0182266906634,    -2100731919985121.5,
    -1.1075788789847873e-13, 7.577333206760833e-15};
const std::vector<std::int32_t> of_python_y{-7, 8, 7, -8, 4, -8};

}  // namespace

TEST_CASE("a table that Python's csv wrote is read, plain and gzip, to the last bit") {
  const support::Folder folder;
  folder.write("a.csv", of_python);
  folder.write("b.csv", support::gzip(of_python));
  for (const char* name : {"a.csv", "b.csv"}) {
    const auto data = ls::read_csv<double, std::int32_t>(folder / name, {.target = "class"});
    CHECK(data.shape() == ls::shape(3));
    CHECK(data.shape(1) == ls::Shape{});
    CHECK(listed(data.features()) == of_python_x);
    CHECK(listed(data.targets()) == of_python_y);
  }
  CHECK_THROWS_AS((ls::read_csv<float, float>(folder / "c.csv")), ls::FileError);
}

TEST_CASE("header, target column, delimiter and line ends follow the options") {
  const auto by_name = parsed("y, x1 ,x2\n3,1,2\r\n\n6,4,5", {.target = "y"});
  CHECK(listed(by_name.features()) == std::vector{1.f, 2.f, 4.f, 5.f});
  CHECK(listed(by_name.targets()) == std::vector{3, 6});
  CHECK(listed(parsed("a,b,c\n1,2,3\n").targets()) == std::vector{3});
  const auto bare = parsed<double, double>("1;2; 3.5 \r4;5;+6e1\r",
                                           {.delimiter = ';', .header = false, .target = "1"});
  CHECK(listed(bare.features()) == std::vector{1., 3.5, 4., 60.});
  CHECK(listed(bare.targets()) == std::vector{2., 5.});
  CHECK(bare.shape(1) == ls::shape(1));
  CHECK(parsed("a\tb\n", {.delimiter = '\t'}).size() == 0u);
  CHECK(listed(parsed("\xef\xbb\xbfy,x\n1,2\n", {.target = "y"}).targets()) == std::vector{1});
  CHECK(listed(parsed("\"a,\"\"\n\",b\n\"1\",\"2\"", {.target = "a,\"\n"}).targets()) ==
        std::vector{1});
}

TEST_CASE("numbers are rounded to nearest, and missing ones follow the options") {
  const auto data =
      parsed<float, double>("0.1,1e-50,nan,-inf,1e-320", {.header = false, .check_finite = false});
  CHECK(data.features()[0] == 0.1f);
  CHECK(data.features()[1] == 0.f);  // underflows in float
  CHECK(std::isnan(data.features()[2]));
  CHECK(data.features()[3] == -HUGE_VALF);
  CHECK(data.targets()[0] == 1e-320);
  const auto filled = parsed("a,b,y\n,2,\n3, ,1\n", {.missing = -1});
  CHECK(listed(filled.features()) == std::vector{-1.f, 2.f, 3.f, -1.f});
  CHECK(listed(filled.targets()) == std::vector{-1, 1});
  const auto tiny = parsed<double, double>(
      "1e-5000,-1e-5000,0e99999999999999999999,0.0000001e-4990,1e-99999999999999999999,0",
      {.header = false});
  CHECK(listed(tiny.features()) == std::vector{0., 0., 0., 0., 0.});
  CHECK(std::signbit(tiny.features()[1]));
  CHECK(listed(parsed<std::uint8_t>("0,255,7", {.header = false}).features()) ==
        std::vector<std::uint8_t>{0, 255});
}

TEST_CASE("hostile tables are refused with file, line, column and remedy") {
  struct Case {
    std::string what, bytes, fact;
    ls::CsvOptions options{};
  };
  const ls::CsvOptions bare{.header = false};
  const std::vector<Case> cases{
      {"nothing", "", "has no line"},
      {"blank lines", "\n\r\n\n", "has no lines"},
      {"one column", "a\n1\n", "has one column"},
      {"another delimiter", "a;b\n1;2\n", "replace the delimiter ',' by ';'"},
      {"another delimiter after quotes", "\"fixed acidity\";\"quality\"\n7.4;5\n",
       "line 1, column 1: ';' after the closing quote, but .delimiter is ','"},
      {"UTF-16",
       std::string("\xff\xfe"
                   "a\0,\0b\0\n\0",
                   10),
       "is UTF-16 text; save it as UTF-8"},
      {"UTF-16, big-endian", std::string("\xfe\xff\0a\0,\0b\0\n", 10), "is UTF-16 text"},
      {"a zip archive", "PK\3\4, 5\n", "is a zip archive"},
      {"numbers as header", "0.0,0.0,0\n0.1,0.2,1\n0.2,0.4,2\n",
       "line 1: the first line has only numbers; set .header = false"},
      {"numbers and a missing value as header", "\n0.0,,0\n0.1,0.2,1\n", "line 2: the first line"},
      {"numbers and a word as header", "5.1,3.5,1.4,0.2,Iris-setosa\n4.9,3.0,1.4,0.2,Iris-setosa\n",
       "line 1: the first line has the number '5.1'; set .header = false"},
      {"a negative number as header", "M,-3\nF,4\n", "the first line has the number '-3'"},
      {"row numbers of pandas", ",a,b,y\n0,1,2,3\n", "column 1 has no name"},
      {"a column without a name", "a, ,y\n1,2,3\n", "column 2 has no name"},
      {"a word for a missing value", "a,b\nNA,2\n",
       "list a word for missing values in .missing_words"},
      {"a word without .missing",
       "a,b\nNULL,2\n",
       "line 2, column 1 ('a'): a value is missing: 'NULL' is in .missing_words; set .missing",
       {.missing_words = {"NULL"}}},
      {"an integer that float rounds", "a,b\n16777217,2\n",
       "line 2, column 1 ('a'): '16777217' is an integer that float would round"},
      {"a negative one", "a,b\n-16777217,2\n", "'-16777217' is an integer"},
      {"a large one", "a,b\n9007199254740993,2\n", "would round; use read_csv<double, ...>"},
      {"a text", "a,b\n1,2\n3,four\n",
       "line 3, column 2 ('b'): 'four' is not an integer; list a text target"},
      {"a header as data", "a,b\n1,2\n", "line 1, column 1: 'a' is not a number", bare},
      {"a real label", "a,b\n1,2.5\n", "line 2, column 2 ('b'): '2.5' is not a 32-bit integer"},
      {"a label beyond 32 bits", "a,b\n1,2147483648\n", "'2147483648' is not a 32-bit integer"},
      {"a real label beyond 32 bits", "a,b\n1,2147483648.0\n", "is not a 32-bit integer"},
      {"NaN as a label", "a,b\n1,nan\n", "'nan' is not a 32-bit integer"},
      {"a number beyond float", "a,b\n1e39,1\n",
       "line 2, column 1 ('a'): '1e39' is out of the range of float"},
      {"a number beyond all", "a,b\n1e5000,1\n", "line 2, column 1 ('a'): '1e5000'"},
      {"digits beyond all", "a,b\n" + std::string(5000, '9') + "e-1,1\n", "is not a number"},
      {"an exponent beyond all", "a,b\n1e99999999999999999999,1\n", "is not a number"},
      {"a decimal comma", "a;b\n1,5;2\n", "'1,5' is not a number", {.delimiter = ';'}},
      {"a hexadecimal number", "a,b\n0x10,1\n", "'0x10'"},
      {"two signs", "a,b\n+-1,1\n", "'+-1'"},
      {"a sign alone", "a,b\n+,1\n", "'+'"},
      {"bytes of another file", "a,b\n\x01\xff,1\n", "'\\x01\\xff' is not a number"},
      {"a NUL", std::string("a,b\n1\0,1\n", 9), "'1\\x00'"},
      {"a missing value", "a,b\n1,2\n,3\n", "line 3, column 1 ('a'): a value is missing"},
      {"a missing label", "a,b\n1,\n", "line 2, column 2 ('b'): a value is missing"},
      {"no integer for a missing label", "a,b\n1,\n", "is not an integer", {.missing = 0.5}},
      {"NaN for a missing label",
       "a,b\n1,\n",
       ".missing is not an integer",
       {.missing = std::nan("")}},
      {"too few columns", "a,b,c\n1,2,3\n1,2\n", "line 3, column 3: the line has 2"},
      {"too many columns", "a,b\n1,2,3\n", "line 2, column 3: the line has 3"},
      {"a quote inside an unquoted field", "a,b\n1\"2,3\n", "line 2, column 1: a quote inside"},
      {"an unterminated quote", "a,b\n1,\"2\n3,4\n", "line 2, column 2: a quoted field is not"},
      {"text after a quote", "a,b\n\"1\"2,3\n", "line 2, column 1: text after"},
      {"lines are counted through quotes", "a,b\n\"\n\n1\",2\n1,x\n", "line 2, column 1"},
      {"lines are counted over blank ones", "a,b\n\n\r\n1,x\n", "line 4, column 2"},
      {"words", "sex,age\nmale,3\n",
       "column 1 ('sex'): 'male' is not a number; list a text column"},
      {"no such feature", "a,b\n1,2\n", "has no column 'c'", {.columns = {"c"}}},
      {"no such column to drop", "a,b\n1,2\n", "has no column 'c'", {.drop = {"c"}}},
      {"no such text column", "a,b\n1,2\n", "has no column 'c'", {.one_hot = {"c"}}},
      {"all dropped", "a,b\n1,2\n", "has no columns left", {.drop = {"a"}}},
      {"a feature beyond", "1,2\n", "0 to 1, not '7'", {.header = false, .drop = {"7"}}},
      {"an unknown word",
       "a,b\nx,2\nz,3\n",
       "line 3, column 1 ('a'): 'z' is not in the vocabulary",
       {.one_hot = {"a"}, .vocabulary = {{"a", {"x", "y"}}}}},
      {"a missing word",
       "a,b\n ,2\n",
       "line 2, column 1 ('a'): a value is missing",
       {.one_hot = {"a"}}},
      {"no words",
       "a,b\n",
       "has no data lines to build a vocabulary for column 'a'",
       {.word_index = {"a"}}},
      {"NaN", "a,b\n1,2\nnan,3\n",
       "line 3, column 1 ('a'): 'nan' is not finite; correct the line, or set .check_finite"},
      {"infinity", "a,b\n-inf,2\n", "column 1 ('a'): '-inf' is not"},
      {"NaN for a missing value",
       "a,b\n,2\n",
       "column 1 ('a'): .missing is not finite",
       {.missing = std::nan("")}},
      {"no such target", "a,b\n1,2\n", "no column 'c'; its columns are 'a', 'b'", {.target = "c"}},
      {"two such targets", "a,a\n1,2\n", "has two columns named 'a'", {.target = "a"}},
      {"a target beyond", "1,2\n", "0 to 1, not '2'", {.header = false, .target = "2"}},
      {"a target's name without header", "1,2\n", "not 'a'", {.header = false, .target = "a"}},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    try {
      parsed(c.bytes, c.options);
      FAIL("it was read");
    } catch (const ls::DataError& error) {
      const std::string text = error.what();
      INFO(text);
      CHECK(text.find("a.csv: ") == 0);
      CHECK(text.find(c.fact) != std::string::npos);
      for (const char letter : text) CHECK((letter >= ' ' && letter <= '~'));
    }
  }
}

TEST_CASE("a first line of numbers is read as .header specifies") {
  const std::string table = "0.0,0.1,0\n0.1,0.2,1\n";
  CHECK(parsed(table, {.header = false}).size() == 2u);
  CHECK(parsed(table, {.header = true}).size() == 1u);
  CHECK(parsed("1,b\n2,3\n").size() == 1u);
  const support::Folder folder;
  folder.write("bare.csv", table);
  CHECK_THROWS_WITH(ls::adapt_csv(folder / "bare.csv"),
                    Catch::Matchers::ContainsSubstring("the first line has only numbers"));
  CHECK(ls::adapt_csv(folder / "bare.csv", {.header = false}).columns ==
        std::vector<std::string>{"0", "1"});
}

TEST_CASE("a column without a name is read only if the options name it") {
  const std::string table = ",a,y\n7,1,2\n8,3,4\n";
  CHECK(listed(parsed(table, {.drop = {""}}).features()) == std::vector{1.f, 3.f});
  CHECK(listed(parsed(table, {.columns = {"", "a"}}).features()) ==
        std::vector{7.f, 1.f, 8.f, 3.f});
  CHECK(listed(parsed(table, {.target = "", .drop = {""}}).targets()) == std::vector{2, 4});
}

TEST_CASE("words for missing values count as empty fields") {
  const ls::CsvOptions options{.missing = -1, .missing_words = {"NA", "NULL", "?"}};
  const auto data = parsed("a,b,y\nNA,2,1\n 3 , NULL,0\n5,\"?\",NA\n", options);
  CHECK(listed(data.features()) == std::vector{-1.f, 2.f, 3.f, -1.f, 5.f, -1.f});
  CHECK(listed(data.targets()) == std::vector{1, 0, -1});
  const auto words =
      parsed("a,y\nNA,1\nx,2\n,3\n", {.missing = 0, .missing_words = {"NA"}, .word_index = {"a"}});
  CHECK(listed(words.features()) == std::vector{0.f, 1.f, 0.f});  // the words "" and "x"
}

TEST_CASE("labels and bytes may be written as real numbers without a fraction") {
  CHECK(listed(parsed("a,y\n1,0.0\n1,1.000000000000000000e+00\n1,-2.\n1,1e3\n").targets()) ==
        std::vector{0, 1, -2, 1000});
  CHECK(listed(parsed<std::uint8_t>("a,y\n255.0,1\n").features()) ==
        std::vector<std::uint8_t>{255});
}

TEST_CASE("blanks around quotes are ignored, except a tab that is the delimiter") {
  const auto data = parsed("a, \"b, c\" ,y\n1, \"2\", 0\n\t\"3\"\t, 4 ,1\n");
  CHECK(listed(data.features()) == std::vector{1.f, 2.f, 3.f, 4.f});
  CHECK(listed(data.targets()) == std::vector{0, 1});
  const auto tabs = parsed("a\tb\ty\n\t\"2\"\t1\n", {.delimiter = '\t', .missing = 9});
  CHECK(listed(tabs.features()) == std::vector{9.f, 2.f});
}

TEST_CASE("integers are read exactly or refused") {
  CHECK(listed(parsed("a,y\n16777216,1\n16777218,1\n33554436,1\n16777217.0,1\n").features()) ==
        std::vector{16777216.f, 16777218.f, 33554436.f, 16777216.f});
  CHECK(listed(parsed<double>("a,y\n16777217,1\n").features()) == std::vector{16777217.});
  CHECK_THROWS_WITH(parsed<double>("a,y\n9007199254740993,1\n"),
                    Catch::Matchers::ContainsSubstring("that double would round; exclude"));
  // Beyond 64 bits, too.
  CHECK_THROWS_WITH(parsed<double>("a,y\n18446744073709551615,1\n"),
                    Catch::Matchers::ContainsSubstring("that double would round"));
  CHECK_THROWS_WITH(parsed("a,y\n-18446744073709551617,1\n"),
                    Catch::Matchers::ContainsSubstring("that float would round"));
  CHECK(listed(
            parsed<double>("a,y\n18446744073709551616,1\n-000000000000000000000,1\n").features()) ==
        std::vector{18446744073709551616., -0.});
  // Columns whose names are years, or words that are read as numbers.
  CHECK(listed(parsed("2019,nan,y\n1,2,3\n").features()) == std::vector{1.f, 2.f});
}

TEST_CASE("features are chosen by name, in the order of the names, or dropped") {
  const std::string table = "id,a,b,price,c\n7,1,2,99.5,3\n8,4,5,98.5,6\n";
  const auto chosen = parsed<float, float>(table, {.target = "price", .columns = {"c", "a"}});
  CHECK(listed(chosen.features()) == std::vector{3.f, 1.f, 6.f, 4.f});
  CHECK(listed(chosen.targets()) == std::vector{99.5f, 98.5f});
  const auto rest = parsed<float, float>(table, {.target = "price", .drop = {"id", "b"}});
  CHECK(listed(rest.features()) == std::vector{1.f, 3.f, 4.f, 6.f});
  const auto bare = parsed<float, std::int32_t>("7,1,2\n8,3,4\n",
                                                {.header = false, .target = "0", .columns = {"2"}});
  CHECK(listed(bare.features()) == std::vector{2.f, 4.f});
  CHECK(listed(bare.targets()) == std::vector{7, 8});
  // Text in a dropped column is ignored, and so are duplicate names.
  CHECK(listed(parsed("name,a,y\n\"Braund, Mr.\",1,2\n", {.drop = {"name"}}).features()) ==
        std::vector{1.f});
  CHECK(listed(parsed("a,a,y\n1,2,3\n").features()) == std::vector{1.f, 2.f});
}

TEST_CASE("text columns become one-hot vectors or vocabulary indices") {
  const std::string table = "sex,age,port,y\nmale,22,S,0\nfemale,38,C,1\nmale,26,Q,1\n";
  const auto data = parsed(table, {.one_hot = {"sex", "port"}});
  CHECK(data.shape() == ls::shape(6));  // female male, age, C Q S
  CHECK(listed(data.features()) == std::vector{0.f, 1.f, 22.f, 0.f, 0.f, 1.f,  //
                                               1.f, 0.f, 38.f, 1.f, 0.f, 0.f,  //
                                               0.f, 1.f, 26.f, 0.f, 1.f, 0.f});
  const auto index = parsed<double>(
      table, {.word_index = {"sex", "port"}, .vocabulary = {{"port", {"S", "C", "Q"}}}});
  CHECK(listed(index.features()) == std::vector{1., 22., 0., 0., 38., 1., 1., 26., 2.});
  const auto unknown = parsed(table, {.one_hot = {"sex"},
                                      .word_index = {"port"},
                                      .vocabulary = {{"sex", {"female"}}, {"port", {"Q", "C"}}},
                                      .unknown_words = true});
  CHECK(listed(unknown.features()) == std::vector{0.f, 22.f, 2.f, 1.f, 38.f, 1.f, 0.f, 26.f, 0.f});
  const auto missing = parsed("a,y\n,1\nx,2\n", {.missing = 7, .word_index = {"a"}});
  CHECK(listed(missing.features()) == std::vector{0.f, 1.f});  // the words "" and "x"
  const auto bytes = parsed<std::uint8_t>("a,y\nx,1\n", {.one_hot = {"a"}});
  CHECK(listed(bytes.features()) == std::vector<std::uint8_t>{1});
}

TEST_CASE("a text target is a label, or a one-hot row of real targets") {
  const std::string iris = "length,species\n5.1,setosa\n6.2,virginica\n5.5,setosa\n";
  const auto labels = parsed(iris, {.word_index = {"species"}});
  CHECK(labels.shape(1) == ls::Shape{});
  CHECK(listed(labels.targets()) == std::vector{0, 1, 0});
  CHECK(listed(parsed(iris, {.one_hot = {"species"}}).targets()) == std::vector{0, 1, 0});
  const auto rows = parsed<float, float>(iris, {.one_hot = {"species"}});
  CHECK(rows.shape(1) == ls::shape(2));
  CHECK(listed(rows.targets()) == std::vector{1.f, 0.f, 0.f, 1.f, 1.f, 0.f});
  CHECK(parsed<float, float>(iris, {.word_index = {"species"}}).shape(1) == ls::shape(1));
}

TEST_CASE("adapted options read another file with the same columns and words") {
  const support::Folder folder;
  folder.write("train.csv", "id,sex,age,y\n1,male,22,0\n2,female,38,1\n");
  folder.write("test.csv", "y,age,sex,ticket\n1,30,male,A5\n");
  const auto options =
      ls::adapt_csv(folder / "train.csv", {.target = "y", .drop = {"id"}, .one_hot = {"sex"}});
  CHECK(options.columns == std::vector<std::string>{"sex", "age"});
  CHECK(options.vocabulary.at("sex") == std::vector<std::string>{"female", "male"});
  CHECK(listed(ls::read_csv(folder / "train.csv", options).features()) ==
        std::vector{0.f, 1.f, 22.f, 1.f, 0.f, 38.f});
  const auto test = ls::read_csv(folder / "test.csv", options);
  CHECK(listed(test.features()) == std::vector{0.f, 1.f, 30.f});
  CHECK(listed(test.targets()) == std::vector{1});
  folder.write("blind.csv", "age,id,sex\n30,7,male\n");  // without the target
  ls::CsvOptions blind = options;
  blind.target = "id";
  const auto unlabelled = ls::read_csv(folder / "blind.csv", blind);
  CHECK(listed(unlabelled.features()) == std::vector{0.f, 1.f, 30.f});
  CHECK(listed(unlabelled.targets()) == std::vector{7});
  // The same with a text column as target.
  folder.write("words.csv", "id,age,port\n1,22,S\n2,38,C\n");
  ls::CsvOptions ports =
      ls::adapt_csv(folder / "words.csv", {.drop = {"id"}, .word_index = {"port"}});
  ports.target = "id";
  CHECK(listed(ls::read_csv(folder / "blind.csv", ports).features()) == std::vector{30.f});
  CHECK_THROWS_WITH(
      parsed("age,id\n30,7\n", {.word_index = {"prot"}, .vocabulary = {{"prot", {"S"}}}}),
      Catch::Matchers::ContainsSubstring("no column 'prot'"));
  folder.write("new.csv", "y,age,sex\n1,30,diverse\n");
  CHECK_THROWS_WITH(ls::read_csv(folder / "new.csv", options),
                    Catch::Matchers::ContainsSubstring("'diverse' is not in the vocabulary"));
  folder.write("twice.csv", "a,a,y\n1,2,3\n");
  CHECK_THROWS_WITH(ls::adapt_csv(folder / "twice.csv"),
                    Catch::Matchers::ContainsSubstring("has two columns named 'a'"));
  const auto bare =
      ls::adapt_csv(folder / "train.csv",
                    {.header = false, .target = "3", .drop = {"0", "2"}, .word_index = {"1", "3"}});
  CHECK(bare.columns == std::vector<std::string>{"1"});
  CHECK(bare.vocabulary.at("1") == std::vector<std::string>{"female", "male", "sex"});
}

TEST_CASE("the error for prices read as labels names the type for a regression") {
  const std::string houses = "rooms,price\n3,165707.5\n";
  CHECK_THROWS_WITH(parsed(houses), Catch::Matchers::ContainsSubstring("('price'): '165707.5'") &&
                                        Catch::Matchers::ContainsSubstring(
                                            "for regression use read_csv<float, float>"));
  CHECK(listed(parsed<float, float>(houses).targets()) == std::vector{165707.5f});
}

TEST_CASE("options that contradict each other are refused") {
  const std::string table = "a,b,y\n1,2,3\n";
  const std::vector<ls::CsvOptions> contradictions{
      {.columns = {"a"}, .drop = {"b"}},
      {.columns = {"a", "a"}},
      {.columns = {"y"}},
      {.drop = {"y"}},
      {.drop = {"a", "a"}},
      {.one_hot = {"a"}, .word_index = {"a"}},
      {.one_hot = {"a", "a"}},
      {.one_hot = {"a"}, .vocabulary = {{"a", {"1", "1"}}}},
      {.one_hot = {"a"}, .vocabulary = {{"sxe", {"1"}}}},
  };
  for (const ls::CsvOptions& options : contradictions) {
    INFO(&options - contradictions.data());
    CHECK_THROWS_AS(parsed(table, options), ls::UsageError);
  }
}

TEST_CASE("a delimiter that occurs in numbers or quotes is refused") {
  for (const char c : {'"', '\n', '.', '-', '7'})
    CHECK_THROWS_AS(parsed("1,2\n", {.delimiter = c}), ls::UsageError);
}

TEST_CASE("columns become fields with the names of a network") {
  const support::Folder folder;
  folder.write("a.csv", "id,area,region,price,rooms,sold\n1,50,b,1.5,2,0\n2,70,a,2.5,3,1\n");
  const auto fields = ls::read_csv_fields(
      folder / "a.csv",
      {ls::features("numbers=rooms,area", "place=region"), ls::targets("price", "sold")},
      {.one_hot = {"region"}});
  const auto values = [&](ls::FieldRole role, const char* name) {
    return std::get<std::vector<double>>(fields.find(role, name)->values);
  };
  CHECK(fields.count() == 2);
  CHECK(values(ls::FieldRole::feature, "numbers") == std::vector<double>{2, 50, 3, 70});
  CHECK(values(ls::FieldRole::feature, "place") == std::vector<double>{0, 1, 1, 0});
  CHECK(values(ls::FieldRole::target, "price") == std::vector<double>{1.5, 2.5});
  CHECK(values(ls::FieldRole::target, "sold") == std::vector<double>{0, 1});
  using Catch::Matchers::ContainsSubstring;
  CHECK_THROWS_WITH(
      ls::read_csv_fields(folder / "a.csv", {ls::features("numbers=rooms"), ls::targets("prize")}),
      ContainsSubstring("has no column 'prize'; its columns are 'id', 'area'"));
  CHECK_THROWS_WITH(ls::read_csv_fields(folder / "a.csv", {ls::features("rooms")}),
                    ContainsSubstring("select at least two columns"));
}
