/// \file
/// A program that uses a library made with lockstep, and lockstep itself in two units.
#include <cstdio>

#include "digits.hpp"
#include "line.hpp"

double slope_of_other_unit();

int main() {
  Digits digits;
  const double first = digits.train(256), second = digits.train(256);
  std::printf("loss falls: %s, slopes are equal: %s\n", second < first ? "yes" : "no",
              fitted_slope() == slope_of_other_unit() ? "yes" : "no");
}
