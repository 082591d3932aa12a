// ElementIndex: where the elements of a document stand, so that those who read it after the first need not parse it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cursor/bson_view.h"

namespace spillway {

// A value that refers to the document. Of one with more elements than elements_max it is empty.
class ElementIndex {
 public:
  static constexpr std::size_t elements_max = 24;

  ElementIndex() noexcept = default;
  // The first element of a document is to be added. REQUIRES that all of its elements follow, in order.
  void begin(DocView document) noexcept {
    document_ = document.data();
    count_ = 0;
    places_[0].element = 4;
  }
  void add(const Element& element) noexcept {
    if (count_ == elements_max) document_ = nullptr;
    if (document_ == nullptr) return;
    places_[count_].value = static_cast<std::uint32_t>(element.bytes.data() - document_);
    ++count_;
    places_[count_].element = static_cast<std::uint32_t>(element.raw.data() + element.raw.size() - document_);
  }

  // Is it complete, and of the document at this place?
  bool is_of(DocView document) const noexcept { return document.data() == document_; }
  // REQUIRES is_of(the document). The end: type eoo, as an iterator has it.
  Element at(std::size_t index) const noexcept {
    Element element;
    if (index >= count_) return element;
    const std::uint8_t* const raw = document_ + places_[index].element;
    const std::uint8_t* const value = document_ + places_[index].value;
    const std::uint8_t* const next = document_ + places_[index + 1].element;
    element.type = static_cast<BsonType>(*raw);
    element.bytes = {value, next};
    element.name = {reinterpret_cast<const char*>(raw) + 1, static_cast<std::size_t>(value - raw) - 2};
    element.raw = {raw, next};
    return element;
  }

 private:
  struct Place {
    std::uint32_t element = 0, value = 0;  // from the document's start
  };
  const std::uint8_t* document_ = nullptr;
  std::size_t count_ = 0;
  std::array<Place, elements_max + 1> places_{};  // the last one in use is the end
};

// Iterates as DocIterator, by the index if it is this document's.
class IndexedIterator {
 public:
  IndexedIterator(DocView document, const ElementIndex* index) noexcept {
    if (index != nullptr && index->is_of(document)) {
      index_ = index;
      element_ = index->at(0);
    } else {
      walk_ = document.begin();
      element_ = *walk_;
    }
  }
  const Element& operator*() const noexcept { return element_; }
  const Element* operator->() const noexcept { return &element_; }
  IndexedIterator& operator++() noexcept {
    element_ = index_ != nullptr ? index_->at(++at_) : *++walk_;
    return *this;
  }
  bool done() const noexcept { return element_.type == BsonType::eoo; }

 private:
  const ElementIndex* index_ = nullptr;  // null: it walks
  std::size_t at_ = 0;
  DocIterator walk_;
  Element element_;
};

}  // namespace spillway
