<?php
// A backend that settles by itself (IdempotencyEffect transactional; transactional.conf): the order, the message about
// it and the operation's outcome are one transaction. Whatever dies, and whenever: all three are there, or none.
//
// The database is the registry's; the login has the role idempotency_backend, see orders.sql. SHOP_DSN names it.

function answer(int $status, array $body, array $headers = []): never {
    http_response_code($status);
    header('Content-Type: application/json');
    foreach ($headers as $name => $value) {
        header("$name: $value");
    }
    echo json_encode($body);
    exit;
}

$operation = $_SERVER['IDEMPOTENCY_OPERATION_ID'] ?? null;
$generation = $_SERVER['IDEMPOTENCY_GENERATION'] ?? null;
if ($operation === null) {
    answer(500, ['error' => 'this address is not protected']); // never sell twice for a missing line of configuration
}
$order = json_decode(file_get_contents('php://input'), true);
if (!is_array($order) || !is_string($order['item'] ?? null) || !is_int($order['quantity'] ?? null)) {
    answer(422, ['error' => 'item and quantity are wanted']);  // nothing was begun; final, and replayed
}

try {
    $db = new PDO(getenv('SHOP_DSN') ?: $_SERVER['SHOP_DSN'], options: [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
    $db->beginTransaction();

    $insert = $db->prepare('INSERT INTO orders (operation, customer, item, quantity) VALUES (?, ?, ?, ?) RETURNING id');
    $insert->execute([$operation, $_SERVER['REMOTE_USER'], $order['item'], $order['quantity']]);
    $id = $insert->fetchColumn();
    $insert->closeCursor();
    $body = ['order' => $id, 'item' => $order['item'], 'quantity' => $order['quantity']];

    // Whoever sends the messages finds it exactly if this transaction commits.
    $db->prepare("SELECT idempotency_outbox_put(?, ?, 'order.made', convert_to(?, 'UTF8'))")
       ->execute([$operation, $generation, json_encode($body)]);

    // With the response that a retry is to get, also where this one never reaches its client.
    $db->prepare("SELECT idempotency_settle(?, ?, 'succeeded', 201, ?, convert_to(?, 'UTF8'))")
       ->execute([$operation, $generation,
                  json_encode(['Content-Type' => 'application/json', 'Location' => "/orders/$id"]), json_encode($body)]);
    $db->commit();
} catch (PDOException $e) {
    // IDEM1: somebody has taken this operation over. That, and every other error, undoes all of it; the next retry runs.
    error_log('order: SQLSTATE ' . $e->getCode()); // the message may have the customer's data in it
    answer(500, ['error' => 'not ordered']);
}
answer(201, $body, ['Location' => "/orders/$id"]);
