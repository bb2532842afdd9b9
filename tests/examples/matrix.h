// Plain matrices, for examples that show how they travel and not how they are multiplied.
#ifndef COHORT_TESTS_EXAMPLES_MATRIX_H_
#define COHORT_TESTS_EXAMPLES_MATRIX_H_

#include <cstddef>
#include <random>
#include <vector>

namespace cohort::testing {

struct Matrix {
  Matrix() = default;
  Matrix(int rows, int columns)
      : rows(rows), columns(columns), values(static_cast<size_t>(rows * columns)) {}
  // Between -1 and 1.
  static Matrix Random(int rows, int columns, std::mt19937& random);

  double& at(int row, int column) { return values[static_cast<size_t>(row * columns + column)]; }
  double at(int row, int column) const {
    return values[static_cast<size_t>(row * columns + column)];
  }

  int rows = 0;
  int columns = 0;
  std::vector<double> values;
};

Matrix Product(const Matrix& a, const Matrix& b);
Matrix Transposed(const Matrix& a);
Matrix Sum(Matrix a, const Matrix& b);
// begin..begin+size-1.
Matrix RowsOf(const Matrix& matrix, int begin, int size);
Matrix ColumnsOf(const Matrix& matrix, int begin, int size);
// Infinite if the shapes differ.
double LargestDifference(const Matrix& a, const Matrix& b);

}  // namespace cohort::testing

#endif  // COHORT_TESTS_EXAMPLES_MATRIX_H_
