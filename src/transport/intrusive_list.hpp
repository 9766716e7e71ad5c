// A doubly linked list whose links live in its elements: no allocation, removal in constant time from anywhere. An
// element may stand in as many lists as it has link members, in each at most once.
#pragma once

namespace tensorwire::transport {

template <class T>
struct ListLink {
  T* previous = nullptr;
  T* next = nullptr;
  bool linked = false;
};

template <class T, ListLink<T> T::*Link>
class IntrusiveList {
 public:
  [[nodiscard]] bool empty() const noexcept { return front_ == nullptr; }
  [[nodiscard]] T* front() const noexcept { return front_; }

  /// Does nothing when the element is in the list already.
  void push_back(T& element) noexcept {
    ListLink<T>& link = element.*Link;
    if (link.linked) return;
    link = {back_, nullptr, true};
    (back_ != nullptr ? (back_->*Link).next : front_) = &element;
    back_ = &element;
  }

  /// Does nothing when the element is not in the list.
  void remove(T& element) noexcept {
    ListLink<T>& link = element.*Link;
    if (!link.linked) return;
    (link.previous != nullptr ? (link.previous->*Link).next : front_) = link.next;
    (link.next != nullptr ? (link.next->*Link).previous : back_) = link.previous;
    link = {};
  }

  void move_to_back(T& element) noexcept {
    remove(element);
    push_back(element);
  }

 private:
  T* front_ = nullptr;
  T* back_ = nullptr;
};

}  // namespace tensorwire::transport
