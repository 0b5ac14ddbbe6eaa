#include "line.hpp"

double slope_of_other_unit();
double slope_of_other_unit() { return static_cast<double>(fitted_slope()); }
