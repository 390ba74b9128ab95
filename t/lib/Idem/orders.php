<?php
// The program of Idem/Orders.pm in PHP, for FPM: the same points, the same answers (no X-Lock).
[$host, $port, $database, $dir] = ['@HOST@', '@PORT@', '@DATABASE@', '@DIR@'];
$operation = $_SERVER['IDEMPOTENCY_OPERATION_ID'];
$generation = $_SERVER['IDEMPOTENCY_GENERATION'];
preg_match('/(\w+)$/', $_SERVER['PATH_INFO'] ?? '', $m);
$kind = $m[1] ?? '';
[$point, $tag] = explode(' ', $_SERVER['HTTP_X_HOLD'] ?? ' ');
$hold = function (string $here) use ($point, $tag, $dir): void {
    if ($here !== $point) {
        return;
    }
    file_put_contents("$dir/$tag.new", getmypid() . "\n");
    rename("$dir/$tag.new", "$dir/$tag");
    for ($i = 0; $i < 12000 && !file_exists("$dir/$tag.go"); $i++) {
        clearstatcache();
        usleep(10000);
    }
};
try {
    $db = new PDO("pgsql:host=$host;port=$port;dbname=$database;user=shop", options: [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
    $db->beginTransaction();
    $insert = $db->prepare('INSERT INTO orders (operation, generation) VALUES (?, ?) RETURNING id');
    $insert->execute([$operation, $generation]);
    $answer = sprintf('{"order":%d,"generation":%d}', $insert->fetchColumn(), $generation);
    $hold('before');
    if ($kind === 'transactional' || $kind === 'bare') {
        $db->prepare("SELECT idempotency_outbox_put(?, ?, 'order', ?::text::bytea)")->execute([$operation, $generation, $answer]);
        $hold('committing');
        $db->prepare("SELECT idempotency_settle(?, ?, 'succeeded', ?, ?, ?::text::bytea)")->execute($kind === 'bare'
            ? [$operation, $generation, null, null, null] : [$operation, $generation, 201, '{"Content-Type":"application/json"}', $answer]);
    }
    $db->commit();
    $hold('after');
    http_response_code(201);
} catch (PDOException $e) {
    $answer = json_encode(['error' => $e->getCode()]);
    http_response_code(500);
}
if ($tag !== '') {
    file_put_contents("$dir/$tag.end", $answer);
}
header('Content-Type: application/json');
echo $answer;
