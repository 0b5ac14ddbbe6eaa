#pragma once

#include "lockstep/data/sources/splits.hpp"

#include <utility>

namespace lockstep::datasets {

Splits::Splits(std::string name, std::function<Images()> train, std::function<Images()> test)
    : name_(std::move(name)), train_(std::move(train)), test_(std::move(test)) {}

}  // namespace lockstep::datasets
