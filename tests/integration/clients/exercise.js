// What the shell and the Node driver both run: the same calls, the same results.
// Returns a plain object that exercise.py must equal.
async function exercise(collection) {
  const out = {};
  // A few things the shell spells otherwise.
  const shell = typeof collection.getIndexes === 'function';
  await collection.deleteMany({});
  const documents = [];
  for (let i = 0; i < 2000; i++) {
    documents.push({_id: i, k: (i * 7919) % 2000, g: i % 7, s: 'v' + i});
  }
  const inserted = await collection.insertMany(documents);
  out.inserted = Object.keys(inserted.insertedIds).length;
  out.count = await collection.countDocuments({});
  out.one = await collection.findOne({_id: 1234});

  const sorted = await collection.find({}).sort({k: 1}).batchSize(100).toArray();
  out.sorted = sorted.map((d) => d._id).filter((_, i) => i % 97 === 0);
  const projected = collection.find({g: 3}, shell ? {_id: 1} : {projection: {_id: 1}});
  const page = await projected.sort({k: -1}).skip(10).limit(40).batchSize(7).toArray();
  out.page = page.map((d) => d._id);

  const updated = await collection.updateMany({g: 1}, {$set: {t: true}});
  out.updated = updated.modifiedCount;
  const upserted = await collection.updateOne({_id: 5000}, {$set: {g: 9}}, {upsert: true});
  out.upserted = shell ? upserted.insertedId : upserted.upsertedId;
  const bulk = await collection.bulkWrite([
    {insertOne: {document: {_id: 6000, g: 10}}},
    {updateOne: {filter: {_id: 17}, update: {$set: {g: 11}}}},
    {updateMany: {filter: {g: 2}, update: {$set: {u: 1}}}},
    {replaceOne: {filter: {_id: 18}, replacement: {g: 12}}},
    {deleteOne: {filter: {_id: 19}}},
    {deleteMany: {filter: {g: 5}}},
  ], {ordered: false});
  out.bulk = [bulk.insertedCount, bulk.matchedCount, bulk.deletedCount];

  try {
    await collection.insertMany([{_id: 7000}, {_id: 6000}, {_id: 7001}], {ordered: false});
  } catch (error) {
    out.duplicate = error.code;
  }
  out.after_duplicate = await collection.countDocuments({_id: {$in: [6000, 7000, 7001]}});

  const groups = await collection.aggregate([
    {$match: {g: {$lt: 7}}}, {$group: {_id: '$g', n: {$sum: 1}}}, {$sort: {_id: 1}},
  ]).toArray();
  out.groups = groups.map((d) => [d._id, d.n]);
  out.distinct = (await collection.distinct('g')).filter((v) => v !== null)
      .sort((a, b) => a - b);
  const found = await collection.findOneAndUpdate({_id: 17}, {$set: {g: 13}},
      {returnDocument: 'after'});
  out.found = found;
  await collection.createIndex({g: 1, k: -1}, {name: 'by_group'});
  const indexes = await (shell ? collection.getIndexes() : collection.indexes());
  out.indexes = indexes.map((i) => i.name).sort();
  out.deleted = (await collection.deleteMany({})).deletedCount;
  await collection.drop();
  return out;
}

if (typeof module !== 'undefined') {
  module.exports = {exercise};
}
