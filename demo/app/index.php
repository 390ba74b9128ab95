<?php
// A small order application of the usual kind: every path comes here, every POST writes a row.
// Called twice, it orders twice.
declare(strict_types=1);

function answer(int $status, array $data): never
{
    http_response_code($status);
    header('Content-Type: application/json');
    echo json_encode($data), "\n";
    exit;
}

$database = new PDO($_SERVER['DATABASE']);
$merchant = $_SERVER['REMOTE_USER'];
$path     = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
$input    = json_decode(file_get_contents('php://input'), true);

switch ("{$_SERVER['REQUEST_METHOD']} $path") {
    case 'POST /orders':
        usleep(300_000); // the warehouse takes its time
        $insert = $database->prepare('INSERT INTO orders (merchant, item, quantity) VALUES (?, ?, ?) RETURNING id');
        $insert->execute([$merchant, $input['item'], $input['quantity']]);
        $id = $insert->fetchColumn();
        header("Location: /orders/$id");
        answer(201, ['order' => $id, 'merchant' => $merchant] + $input);

    case 'POST /refunds':
        $insert = $database->prepare('INSERT INTO refunds (merchant, "order") VALUES (?, ?) RETURNING id');
        $insert->execute([$merchant, $input['order']]);
        answer(201, ['refund' => $insert->fetchColumn(), 'order' => $input['order']]);

    case 'GET /orders':
        $rows = $database->prepare('SELECT id, item, quantity FROM orders WHERE merchant = ? ORDER BY id');
        $rows->execute([$merchant]);
        answer(200, $rows->fetchAll(PDO::FETCH_ASSOC));

    default:
        answer(404, ['error' => "nothing at $path"]);
}
