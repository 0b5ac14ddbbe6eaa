/// \file
/// A list of objects on the heap, for class templates with many instances: its vector is the same
/// for all types of objects, so that a unit compiles it once.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep::detail {

/// A list of places, each of which owns an object of type T or is empty. Move-only.
/// \code
///   OwnedList<Replica> replicas;
///   replicas.resize(2);
///   replicas.put(1, new Replica(device));   // from any thread, if others use other places
///   replicas[1]->wait();
/// \endcode
template <class T>
class OwnedList {
 public:
  OwnedList() = default;
  OwnedList(OwnedList&&) = default;
  OwnedList& operator=(OwnedList&&) = default;

  std::size_t size() const { return objects_.size(); }
  /// New places are empty.
  void resize(std::size_t size) { objects_.resize(size); }
  /// Destroys the objects, the first one first.
  void clear() { objects_.clear(); }
  /// Puts `object` in a place, and destroys the object that was there.
  void put(std::size_t place, T* object) {
    objects_[place] = std::shared_ptr<void>(static_cast<void*>(object), &destroy);
  }
  /// The object in a place; null if it is empty.
  T* operator[](std::size_t place) const { return static_cast<T*>(objects_[place].get()); }

 private:
  static void destroy(void* object) { delete static_cast<T*>(object); }

  std::vector<std::shared_ptr<void>> objects_;
};

}  // namespace lockstep::detail
